package keys

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

// Command is "aeemesh keys" with its subcommands.
func Command(a *session.App) *cobra.Command {
	return a.Holder(&cobra.Command{
		Use:   "keys",
		Short: "Make, list, trust and revoke signing keys",
		Long: `Works on a directory of keys: <kid>.nk is a secret (an nkeys seed, mode 0600),
<kid>.json says which key it is, which entities it may speak for, and until
when. With --shared it works on the mesh's bucket of public keys too, which
workers follow with --shared-keys.`,
		Example: `  aeemesh keys new ada --from human.ada
  aeemesh keys show ada | ssh worker aeemesh keys trust -   # the worker may now believe ada
  aeemesh keys trust ada.json --shared                      # every worker with --shared-keys may
  aeemesh keys revoke ada --shared`,
	}, keysNewCommand(a), keysListCommand(a), keysShowCommand(a), keysTrustCommand(a), keysRevokeCommand(a))
}

// DirFlag adds --keys alone, for commands that neither sign nor verify.
func DirFlag(a *session.App, c *cobra.Command, shared *bool) *cobra.Command {
	a.AddSignFlags(c.Flags(), 0)
	if shared != nil {
		c.Flags().BoolVar(shared, "shared", false, "in the mesh's bucket too")
		return session.Connects(c)
	}
	return c
}

func keysNewCommand(a *session.App) *cobra.Command {
	var alg, expires, notBefore, comment string
	var from []string
	var shared bool
	c := &cobra.Command{
		Use:   "new KID",
		Short: "Make a key",
		Long: `Makes a key and prints its trust record, which holds no secret and is what
others need to verify you (keys trust). For a rotation make the new key with
another kid, let others trust it, and revoke the old one later: both are good
meanwhile.

An hs256 key is one secret that both sides share: whoever verifies with it can
also sign with it. Copy its two files in a safe way.`,
		Example: `  aeemesh keys new ada --from human.ada
  aeemesh keys new reviewer-2 --from agent.reviewer --expires 8760h > reviewer-2.json
  aeemesh keys new gate --from 'service.*' --from 'agent.>' --shared`,
		Args: outcome.Arguments("KID"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := a.NoHome(); err != nil {
				return err
			}
			key, signer, err := makeKey(a, cmd, args[0], alg, from, notBefore, expires, comment)
			if err != nil {
				return err
			}
			dir := a.DirToWrite()
			undo := undoKey(dir, key.KID)
			if err := sign.SaveKey(dir, signer, key); err != nil {
				if errors.Is(err, fs.ErrExist) {
					return outcome.Hinted(err, "A new key needs a new kid; nothing is overwritten.")
				}
				return err
			}
			record, err := key.Record()
			if err != nil {
				return err
			}
			if shared {
				err := shareKey(a, ctx, cmd, record)
				if errors.Is(err, jetstream.ErrUncertain) {
					// The mesh may already have the record: without the secret
					// the kid would be lost.
					return outcome.Hinted(err, "The key is kept in %s: \"aeemesh keys trust %s --shared\" tries again.", dir, filepath.Join(dir, key.KID+".json"))
				}
				if err != nil {
					return errors.Join(err, undo())
				}
			}
			a.Term.Good("key %s (%s) may speak for %s; it is in %s", key.KID, key.Alg, strings.Join(key.From, ", "), dir)
			tellSigning(a, key.KID, filepath.Join(dir, key.KID+".json"), shared)
			return printRecord(a, record)
		}),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&alg, "alg", "ed25519", "ed25519 or hs256")
	flags.StringArrayVar(&from, "from", nil, "`entity` that it may speak for, or a pattern such as agent.*; repeatable (default human.<your login>)")
	flags.StringVar(&notBefore, "not-before", "", "valid from this `time`, or duration from now")
	flags.StringVar(&expires, "expires", "", "valid until this `time`, or duration from now")
	flags.StringVar(&comment, "comment", "", "a label for people")
	return DirFlag(a, c, &shared)
}

// undoKey is called before a key is saved. The returned function deletes the
// key's files, and the directories that did not exist before.
func undoKey(dir, kid string) func() error {
	var made []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) || d == filepath.Dir(d) {
			break
		}
		made = append(made, d)
	}
	return func() error {
		err := errors.Join(os.Remove(filepath.Join(dir, kid+".nk")), os.Remove(filepath.Join(dir, kid+".json")))
		for _, d := range made {
			if os.Remove(d) != nil {
				break // the directory is not empty any more
			}
		}
		return err
	}
}

func makeKey(a *session.App, cmd *cobra.Command, kid, alg string, from []string, notBefore, expires, comment string) (sign.Key, *sign.Signer, error) {
	var none sign.Key
	kind := sign.Ed25519
	switch strings.ToLower(alg) {
	case "ed25519":
	case "hs256":
		kind = sign.HS256
	default:
		return none, nil, outcome.Usagef(cmd, "--alg %q: it is ed25519 or hs256", alg)
	}
	if kid == session.SignAuto || kid == session.SignNone {
		return none, nil, outcome.Usagef(cmd, "kid %q is reserved: --sign %s names no key; choose another kid", kid, kid)
	}
	if len(from) == 0 {
		from = []string{a.DefaultFrom()}
	}
	for _, who := range from {
		if strings.ContainsAny(who, "*>") {
			continue // a pattern, which NewKey checks
		}
		if err := subject.ValidateEntity(who); err != nil {
			return none, nil, outcome.Usagef(cmd, "--from: %w", err)
		}
	}
	signer, key, err := sign.NewKey(kid, kind, from...)
	if err != nil {
		return none, nil, &outcome.UsageError{Err: err, Cmd: cmd}
	}
	now := time.Now().UTC().Truncate(time.Second)
	if key.NotBefore, err = moment(notBefore, now); err != nil {
		return none, nil, outcome.Usagef(cmd, "--not-before: %w", err)
	}
	if key.Expires, err = moment(expires, now); err != nil {
		return none, nil, outcome.Usagef(cmd, "--expires: %w", err)
	}
	if !key.Expires.IsZero() && !key.Expires.After(now) {
		return none, nil, outcome.Usagef(cmd, "--expires %s: that time is over, and no signature of the key would count", expires)
	}
	key.Comment = comment
	if err := key.Check(); err != nil {
		return none, nil, &outcome.UsageError{Err: err, Cmd: cmd}
	}
	return key, signer, nil
}

// moment parses a time, or a duration from now; "" is the zero time.
func moment(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a time such as 2027-01-31 or 2027-01-31T12:00:00Z, nor a duration such as 720h", s)
}

func printRecord(a *session.App, r sign.Record) error {
	if a.Term.JSON {
		return a.Term.Object(r)
	}
	text, err := r.Marshal()
	if err != nil {
		return err
	}
	return a.Term.Bytes(text)
}

// shareKey writes a record to the mesh's bucket. It does not undo a revocation
// there.
func shareKey(a *session.App, ctx context.Context, cmd *cobra.Command, r sign.Record) error {
	if r.Alg == sign.HS256 && !r.Revoked {
		return outcome.Hinted(fmt.Errorf("key %q is a shared secret, and the bucket holds public keys only", r.KID), "Use an ed25519 key, or copy the key's files.")
	}
	text, err := r.Marshal()
	if err != nil {
		return err
	}
	conn, err := a.Connect(ctx, cmd, session.ConnectionStatus(a.Term, false))
	if err != nil {
		return err
	}
	defer conn.Close()
	records, err := a.SharedKeys(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.Conn.Wait())
	defer cancel()
	have, err := records.Get(ctx, r.KID)
	switch {
	case errors.Is(err, jetstream.ErrNotFound):
		_, err = records.Create(ctx, r.KID, text)
	case err == nil:
		old, parseErr := sign.ParseRecord(have.Value)
		switch {
		case parseErr == nil && (old.Alg != r.Alg || old.Public != r.Public):
			return &outcome.SaidError{Text: fmt.Sprintf("the mesh knows another key with the id %q", r.KID), Cause: sign.ErrTaken}
		case parseErr == nil && old.Revoked && !r.Revoked:
			return &outcome.SaidError{Text: fmt.Sprintf("the mesh has revoked key %q, and that cannot be undone", r.KID), Cause: sign.ErrRevoked}
		}
		_, err = records.Update(ctx, r.KID, text, have.Revision)
	}
	if err != nil {
		return fmt.Errorf("share key %q: %w", r.KID, err)
	}
	if r.Revoked {
		a.Term.Good("key %s is revoked in the mesh's bucket", r.KID)
	} else {
		a.Term.Good("key %s is in the mesh's bucket; workers with --shared-keys trust it", r.KID)
	}
	return nil
}

// changedKey writes a record that was changed here to the mesh's bucket, if it is to be
// shared, and prints it with --json.
func changedKey(a *session.App, ctx context.Context, cmd *cobra.Command, r sign.Record, share bool) error {
	if share {
		if err := shareKey(a, ctx, cmd, r); err != nil {
			return err
		}
	}
	if a.Term.JSON {
		return a.Term.Object(r)
	}
	return nil
}

func keysShowCommand(a *session.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "show KID",
		Short: "Print a key's trust record, which holds no secret",
		Example: `  aeemesh keys show ada > ada.json
  aeemesh keys show ada | ssh worker aeemesh keys trust -`,
		Args:              outcome.Arguments("KID"),
		ValidArgsFunction: session.Completing(a, completeKIDs),
		RunE: a.Do(func(_ context.Context, _ *cobra.Command, args []string) error {
			if err := a.NoHome(); err != nil {
				return err
			}
			lines, err := localKeys(a)
			if err != nil {
				return err
			}
			for _, l := range lines {
				if l.KID == args[0] && len(l.From) > 0 {
					return printRecord(a, l.Record)
				}
			}
			return outcome.Hinted(outcome.NotFound("there is no key %q in %s", args[0], a.DirToWrite()), "\"aeemesh keys list\" shows what is there.")
		}),
	}
	return DirFlag(a, c, nil)
}

func keysTrustCommand(a *session.App) *cobra.Command {
	var shared bool
	c := &cobra.Command{
		Use:   "trust FILE|-",
		Short: "Trust another party's key",
		Long: `Reads a trust record, as "keys new" and "keys show" print it, and puts it into
the key directory: from then on signatures of this key count, for the entities
that the record names. Look at those first. A revocation is never undone.`,
		Example: `  aeemesh keys trust ada.json
  aeemesh keys show ada | ssh worker aeemesh keys trust -
  aeemesh keys trust ada.json --shared`,
		Args: outcome.Arguments("FILE|-"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := a.NoHome(); err != nil {
				return err
			}
			data, err := a.ReadWhole(args[0], 1<<20)
			if err != nil {
				return err
			}
			r, err := sign.ParseRecord(data)
			if err != nil {
				return outcome.Hinted(fmt.Errorf("%s: %w", args[0], err), "It takes the record that \"aeemesh keys show KID\" prints, of the key's owner: KID.json, and never the secret, KID.nk.")
			}
			if err := sign.Trust(a.DirToWrite(), r); err != nil {
				return err
			}
			if r.Revoked {
				a.Term.Good("key %s is revoked in %s", r.KID, a.DirToWrite())
			} else {
				a.Term.Good("key %s (%s) may speak for %s", r.KID, r.Alg, strings.Join(r.From, ", "))
			}
			return changedKey(a, ctx, cmd, r, shared)
		}),
	}
	return DirFlag(a, c, &shared)
}

func keysRevokeCommand(a *session.App) *cobra.Command {
	var shared bool
	c := &cobra.Command{
		Use:   "revoke KID",
		Short: "Revoke a key, so that its signatures no longer count",
		Long: `Marks a key as revoked, for good: none of its signatures counts any more,
however old. Workers that read this directory see it within five seconds, and
with --shared all that use --shared-keys within two.`,
		Example: `  aeemesh keys revoke ada
  aeemesh keys revoke ada --shared`,
		Args:              outcome.Arguments("KID"),
		ValidArgsFunction: session.Completing(a, completeKIDs),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := a.NoHome(); err != nil {
				return err
			}
			r, err := sign.Revoke(a.DirToWrite(), args[0])
			switch {
			case errors.Is(err, fs.ErrNotExist) && shared:
				if r, err = sharedRecord(a, ctx, cmd, args[0]); err != nil {
					return err
				}
				r.Revoked = true
			case errors.Is(err, os.ErrNotExist):
				return outcome.Hinted(outcome.NotFound("there is no key %q in %s", args[0], a.DirToWrite()), "\"aeemesh keys list\" shows what is there; --shared revokes in the mesh's bucket.")
			case err != nil:
				return err
			default:
				a.Term.Good("key %s is revoked in %s", r.KID, a.DirToWrite())
			}
			return changedKey(a, ctx, cmd, r, shared)
		}),
	}
	return DirFlag(a, c, &shared)
}

// sharedRecord reads a key's record from the mesh's bucket, also one that an answer of the server
// covers: the key is then to be revoked all the same.
func sharedRecord(a *session.App, ctx context.Context, cmd *cobra.Command, kid string) (sign.Record, error) {
	conn, err := a.Connect(ctx, cmd, session.ConnectionStatus(a.Term, false))
	if err != nil {
		return sign.Record{}, err
	}
	defer conn.Close()
	records, err := a.SharedKeys(conn)
	if err != nil {
		return sign.Record{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.Conn.Wait())
	defer cancel()
	have, err := records.Get(ctx, kid)
	if errors.Is(err, natsjs.ErrMsgNotFound) { // not the bucket
		return sign.Record{}, outcome.NotFound("there is no key %q, neither in %s nor in the mesh's bucket", kid, a.DirToWrite())
	}
	if err != nil {
		return sign.Record{}, fmt.Errorf("shared keys: %w", err)
	}
	r, err := session.ReadShared(have)
	if err != nil {
		return sign.Record{}, fmt.Errorf("shared key %s: %w", kid, err)
	}
	return r, nil
}

// tellSigning says what changes with a new key, if it changes anything:
// messages that were unsigned so far are signed from now on.
func tellSigning(a *session.App, kid, record string, shared bool) {
	a.Sign.Keys = nil // the directory has changed; read it again
	a.Sign.Kid = session.SignAuto
	from := a.DefaultFrom()
	signer, err := a.Signer(from)
	if err != nil || signer == nil || signer.KID() != kid {
		return
	}
	a.Term.Note("from now on what you send as %s is signed with it (--sign none: not); workers refuse what is signed with a key that they do not trust", from)
	switch {
	case shared:
		a.Term.Hint("Workers with --shared-keys trust it now, those that read this key directory within seconds; others need \"aeemesh keys trust\".")
	default:
		a.Term.Hint("Workers that read this key directory trust it within seconds. \"aeemesh keys trust " + record + " --shared\" lets those with --shared-keys; others need \"aeemesh keys trust\" of their own.")
	}
}

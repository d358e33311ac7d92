package keys

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// keyLine is a line of the output of "keys list".
type keyLine struct {
	sign.Record
	State  string `json:"state"`  // valid, revoked, expired, not yet valid
	Own    bool   `json:"own"`    // the secret is here, too
	Source string `json:"source"` // local or shared
}

func keysListCommand(a *session.App) *cobra.Command {
	var shared bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the keys that are trusted here",
		Example: `  aeemesh keys list
  aeemesh keys list --shared --json | jq 'select(.state != "valid")'`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if err := a.NoHome(); err != nil && !shared {
				return err
			}
			lines, err := localKeys(a)
			if err != nil {
				return err
			}
			if shared {
				more, err := bucketKeys(a, ctx, cmd)
				if err != nil {
					return err
				}
				lines = append(lines, more...)
			}
			if len(lines) == 0 && !a.Term.JSON {
				a.Term.Say("there are no keys in %s", cmp.Or(a.DirToWrite(), "the mesh's bucket"))
				a.Term.Hint("\"aeemesh keys new KID\" makes one.")
				return nil
			}
			return term.List(a.Term, []string{"kid", "alg", "speaks for", "state", "until (UTC)", "own", "source", "comment"}, lines, func(l keyLine) []string {
				own, until := "", ""
				if l.Own {
					own = "yes"
				}
				if !l.Expires.IsZero() {
					until = l.Expires.UTC().Format(time.DateTime)
				}
				return []string{l.KID, string(l.Alg), strings.Join(l.From, " "), l.State, until, own, l.Source, l.Comment}
			})
		}),
	}
	return DirFlag(a, c, &shared)
}

func localKeys(a *session.App) ([]keyLine, error) {
	keys, err := a.Keys()
	if err != nil {
		return nil, err
	}
	var out []keyLine
	for _, k := range keys.Trusted {
		r, err := k.Record()
		if err != nil {
			return nil, err
		}
		_, own := keys.Signer(k.KID)
		out = append(out, keyLine{r, stateOf(r, time.Now()), own, sign.Local.String()})
	}
	for _, s := range keys.Signers {
		if !slices.ContainsFunc(keys.Trusted, func(k sign.Key) bool { return k.KID == s.KID() }) {
			out = append(out, keyLine{sign.Record{KID: s.KID(), Alg: s.Alg()}, "no trust record", true, sign.Local.String()})
		}
	}
	return out, nil
}

func bucketKeys(a *session.App, ctx context.Context, cmd *cobra.Command) ([]keyLine, error) {
	conn, err := a.Connect(ctx, cmd, session.ConnectionStatus(a.Term, false))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	records, err := a.SharedKeys(conn)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.Conn.Wait())
	defer cancel()
	list, err := records.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("shared keys: %w", err)
	}
	var out []keyLine
	for _, have := range list {
		r, err := session.ReadShared(have)
		if err != nil {
			a.Term.Warn("shared key %s: %s", term.Printable(have.ID), outcome.Text(err))
			continue
		}
		out = append(out, keyLine{r, stateOf(r, time.Now()), false, sign.Shared.String()})
	}
	sorted.By(out, func(x, y keyLine) int { return strings.Compare(x.KID, y.KID) })
	return out, nil
}

func stateOf(r sign.Record, now time.Time) string {
	switch {
	case r.Revoked:
		return "revoked"
	case !r.NotBefore.IsZero() && now.Before(r.NotBefore):
		return "not yet valid"
	case !r.Expires.IsZero() && !now.Before(r.Expires):
		return "expired"
	}
	return "valid"
}

func completeKIDs(a *session.App, _ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	lines, err := localKeys(a)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, l := range lines {
		out = append(out, l.KID)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

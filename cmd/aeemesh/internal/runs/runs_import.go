package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// importFlags say how a run is imported.
type importFlags struct {
	receipt, reason, seal string
	refuse, evenEnded     bool
}

func runsImportCommand(a *session.App) *cobra.Command {
	f := &importFlags{}
	c := session.Connects(&cobra.Command{
		Use:   "import FILE",
		Short: "Import a run from another platform, or a copy of one",
		Long: `Imports what "runs export" has written (FILE, object:BUCKET/NAME, or - for
standard input). A file with a migration token transfers a run: the token must
be signed with a key that is trusted here, for this platform, unexpired and
unused, and the agent must be served here. Then the run goes on, and the
receipt tells its source.

--seal opens a file that "runs export --seal" has encrypted, and does nothing
else: what is stored here is sealed with the state key of this platform's
workers (--state-key), or in clear if they have none.

A file without a token is a copy: it begins a run of its own. The document may
be another platform's, of an agent that is served here. A copy of a run that has
ended (completed or failed) is refused, unless you say --even-ended.`,
		Example: `  aeemesh runs import run.json --receipt receipt.json
  aeemesh runs import run.json --seal file:paris.key --receipt receipt.json
  aeemesh runs import run.json --refuse "no room" --receipt receipt.json
  aeemesh runs import copy.json`,
		Args: outcome.Arguments("FILE"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			f.refuse = cmd.Flags().Changed("refuse")
			return importRun(a, ctx, cmd, args[0], f)
		}),
	})
	c.Flags().StringVar(&f.receipt, "receipt", "", "`file` for the receipt (default none; \"runs receipt\" writes one later)")
	c.Flags().StringVar(&f.reason, "refuse", "", "refuse the run for ever, for this `reason`")
	c.Flags().StringVar(&f.seal, "seal", "", "decrypt the file with the key `env:NAME or file:PATH`, that of \"runs export --seal\"")
	c.Flags().BoolVar(&f.evenEnded, "even-ended", false, "begin a new run also from a copy of a run that has ended")
	AddReceiverFlags(a, c)
	return c
}

// AddReceiverFlags adds the flags of commands that receive transferred runs.
func AddReceiverFlags(a *session.App, c *cobra.Command) {
	AddPlatformFlag(a, c.Flags())
	c.Flags().StringArrayVar(&a.Issuers, "issuer", nil, "`PATTERN` of entities that may transfer runs of any agent; repeatable (default: each agent its own)")
	c.Flags().BoolVar(&a.AnyVersion, "any-version", false, "take in runs of whatever agent_version, also of another major one than the workers serve here")
	a.AddStateFlags(c.Flags())
	a.AddSignFlags(c.Flags(), session.SignAll)
}

// ReceiverOf makes the receiver of transferred runs for a session.
func ReceiverOf(a *session.App, s *session.Session, known map[string]string) (*handoff.Receiver, error) {
	js, m, err := a.Streams(s.Conn)
	if err != nil {
		return nil, err
	}
	definitions := jetstream.NewAgents(js, m)
	return s.Node.Receiver(mesh.ReceiverOptions{
		Handoffs: jetstream.NewHandoffs(js, m), Platform: a.Platform, Issuers: a.Issuers, Agents: known, Share: int64(a.PerIssuer) << 20, AnyVersion: a.AnyVersion,
		Registered: func(ctx context.Context, agentID string) (string, error) {
			e, err := definitions.Get(ctx, registry.KeyOf(agentID, ""))
			if err != nil && !errors.Is(err, registry.ErrNotFound) {
				a.Log.Debug("the registry does not say which agent has an agent_id", "agent_id", agentID, "err", err)
			}
			return e.Record.Entity, nil
		},
	})
}

func importRun(a *session.App, ctx context.Context, cmd *cobra.Command, from string, f *importFlags) error {
	key, err := fileKey(a, cmd, f.seal)
	if err != nil {
		return err
	}
	s, err := a.Open(ctx, cmd, session.Options{Entity: a.DefaultFrom(), Signed: true, Config: MovingClient(a, cmd)})
	if err != nil {
		return err
	}
	defer s.Close()
	file, err := readIn(a, ctx, s, from)
	if err != nil {
		return err
	}
	r, err := ReceiverOf(a, s, nil)
	if err != nil {
		return err
	}
	_, _, tokenErr := transfer.TakeToken(file)
	isCopy := !f.refuse && errors.Is(tokenErr, transfer.ErrTokenInvalid)
	var to *outFile
	switch {
	case f.receipt == "":
	case isCopy:
		a.Term.Warn("a copy has no receipt: %s is not written", term.Printable(f.receipt))
	default:
		if err := canSign(a, ctx, r, file, f.refuse); err != nil {
			return err
		}
		if to, err = openOut(a, ctx, s, f.receipt); err != nil {
			return err
		}
		defer to.discard()
	}
	var status handoff.Status
	if f.refuse {
		status, err = r.Decline(ctx, file, f.reason)
	} else if isCopy {
		return importCopy(a, ctx, cmd, s, file, key, f.evenEnded)
	} else {
		status, err = r.Import(ctx, file, key)
	}
	if err != nil {
		return transferFailed(err)
	}
	if to != nil {
		if err := writeReceipt(a, ctx, r, status.Handoff, f.receipt, to); err != nil {
			return outcome.Hinted(fmt.Errorf("run %s was accepted or refused, but its receipt could not be written: %w", ShortRun(status.Run), err),
				"Its source waits for one: \"aeemesh runs receipt %s -o FILE\".", ShortRun(status.Run))
		}
	}
	if status.Phase == state.PhaseRefused && !f.refuse {
		return outcome.Conflict("run %s was not accepted: %s", ShortRun(status.Run), cmp.Or(term.OneLine(status.Reason), "it was refused here meanwhile"))
	}
	if a.Term.JSON {
		return a.Term.Object(status)
	}
	if status.Phase == state.PhaseRefused {
		a.Term.Good("run %s is refused", ShortRun(status.Run))
		return nil
	}
	a.Term.Good("run %s of %s goes on here", ShortRun(status.Run), status.Entity)
	if f.receipt == "" {
		a.Term.Hint(fmt.Sprintf("Its source waits for a receipt: \"aeemesh runs receipt %s -o FILE\".", ShortRun(status.Run)))
	}
	return nil
}

// canSign checks, before a run is accepted or refused, that there is a key for
// its receipt: afterwards the token is used up.
func canSign(a *session.App, ctx context.Context, r *handoff.Receiver, file []byte, refuse bool) error {
	entity, err := r.Entity(ctx, file, refuse)
	if err != nil {
		return importFailed(err)
	}
	_, err = tokenSigner(a, entity)
	return err
}

// importCopy begins a new run from a document. evenEnded says that the document may be of
// a run that has ended, whose work is then done again.
func importCopy(a *session.App, ctx context.Context, cmd *cobra.Command, s *session.Session, file []byte, key *state.Keyring, evenEnded bool) error {
	if key == nil {
		var err error
		if key, err = a.Keyring(cmd); err != nil {
			return err
		}
	}
	c, err := handoff.OpenFile(file, state.Codec{Seal: key})
	if err != nil {
		return importFailed(err)
	}
	if c.Terminal() && !evenEnded {
		return outcome.Hinted(outcome.Conflict("run %s has ended, with status %s: it is not begun again", ShortRun(c.Doc.RunID), c.Doc.Status),
			"--even-ended makes a new run of it, which may repeat what it did.")
	}
	if c.Mesh.Entity != "" {
		err := s.Node.CheckSealKey(ctx, c.Mesh.Entity)
		if err == nil {
			err = c.Inbound(time.Now()) // a file may contain false claims about other agents' runs
		}
		if err != nil {
			return importFailed(err)
		}
	}
	if !a.AnyVersion {
		if err := s.Node.CheckVersion(ctx, c); err != nil {
			return importFailed(err)
		}
	}
	receipt, err := s.Node.Fork(ctx, c, state.ForkOf{})
	if err != nil {
		return importFailed(err)
	}
	if a.Term.JSON {
		return a.Term.Object(receipt)
	}
	a.Term.Line("%s", receipt.TaskID)
	a.Term.Good("run %s goes on from the copy, as task %s", ShortRun(receipt.Run), receipt.TaskID)
	return nil
}

// transferFailed adds a hint to the error of a run with a token that was refused, or whose import was
// cut off. The same import again finishes that one; a copy would begin a second run.
func transferFailed(err error) error {
	for _, cut := range []error{jetstream.ErrUncertain, state.ErrUncertain, jetstream.ErrUnavailable, context.DeadlineExceeded} {
		if errors.Is(err, cut) {
			return outcome.Hinted(err, "Give the command again when the server answers: it goes on where it was cut off.")
		}
	}
	return importFailed(err)
}

// importFailed adds a hint to the error of a refused run.
func importFailed(err error) error {
	for _, known := range []struct {
		err  error
		hint string
	}{
		{transfer.ErrTokenExpired, "The source writes a new file with the same \"aeemesh runs export\"; the clocks may differ, too (\"aeemesh doctor\")."},
		{transfer.ErrTokenAudience, "It is for another platform; --platform says which one this is."},
		{transfer.ErrTokenKey, "Trust the source's key: \"aeemesh keys trust FILE\"; it must speak for the run's agent, or for an --issuer."},
		{transfer.ErrTokenUsed, "The run was accepted or refused before: \"aeemesh handoff list\"."},
		{transfer.ErrRunExists, "\"aeemesh runs list\" shows it."},
		{handoff.ErrFileKey, "Give the key that the file was encrypted with: --seal env:NAME or file:PATH."},
		{mesh.ErrSealKey, "--state-key is the key of this platform's workers; leave it out if they have none. The key of the file is --seal."},
		{state.ErrSealed, "Give the key with --state-key env:NAME or file:PATH."},
		{mesh.ErrVersion, "Start a worker of that version, or let the workers here go on with the run all the same: --any-version."},
		{transfer.ErrUnknownAgent, "Start its worker first: \"aeemesh worker FILE\"."},
		{state.ErrNoChecksum, "It has no checksum, and a run is not restored from such a document. Its maker has to write provenance.checksum; \"aeemesh validate FILE\" says which it is."},
		{state.ErrChecksum, "The file was changed after its checksum was made, on its way or by hand. \"aeemesh validate FILE\" says which checksum it has."},
	} {
		if errors.Is(err, known.err) {
			return outcome.Hinted(err, "%s", known.hint)
		}
	}
	return session.LaneError(err)
}

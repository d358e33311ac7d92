package runs

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// exportFlags say how a run is exported.
type exportFlags struct {
	platform, issuer, out, seal string
	clear                       bool
	life                        time.Duration
}

func (f *exportFlags) add(a *session.App, flags *pflag.FlagSet) {
	flags.StringVar(&f.platform, "for", "", "transfer the run to this `platform`: it stops here")
	flags.StringVar(&f.seal, "seal", "", "encrypt the file with the key `env:NAME or file:PATH`, which the other platform has too (\"runs import --seal\")")
	flags.BoolVar(&f.clear, "clear", false, "leave the file readable, with all that is in it")
	flags.StringVar(&f.issuer, "issuer", "", "the `entity` that signs the token (default the run's agent)")
	flags.DurationVar(&f.life, "life", transfer.MaxTokenLife, "how long the file may be imported; at most 15m")
	AddPlatformFlag(a, flags)
}

func runMoveCommands(a *session.App) []*cobra.Command {
	return []*cobra.Command{runsExportCommand(a), runsImportCommand(a), runsReceiptCommand(a), runsConfirmCommand(a), runsRecallCommand(a)}
}

func runsExportCommand(a *session.App) *cobra.Command {
	f := &exportFlags{}
	var entity string
	c := session.Connects(&cobra.Command{
		Use:   "export RUN",
		Short: "Write a run into a file, as a copy or to transfer it",
		Long: `Writes the last checkpoint of a run, an AAIF Agent State document, into a file
or an object store (object:BUCKET/NAME). Without --for it is a copy, and the
run goes on.

With --for the run is transferred to another platform. It stops, its status is
migrating, and the file has a token that lets that platform import it once,
within 15 minutes. Then bring back the receipt that "runs import" writes there
("runs confirm"): that the run was accepted, and in the end its result. The
other platform refuses a run with "runs import --refuse", whose receipt brings
it back.`,
		Example: `  aeemesh runs export 0f4c --clear -o run.json
  aeemesh runs export 0f4c --for paris --seal file:paris.key -o run.json
  aeemesh runs export 0f4c --for paris --clear -o object:exchange/0f4c`,
		Args: outcome.Arguments("RUN"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return exportRun(a, ctx, cmd, f, args[0], entity)
		}),
	})
	c.Flags().StringVarP(&f.out, "out", "o", "-", "`file` to write, object:BUCKET/NAME, or - for standard output")
	f.add(a, c.Flags())
	EntityFlag(c, &entity)
	a.AddStateFlags(c.Flags())
	a.AddSignFlags(c.Flags(), session.SignAll)
	return c
}

func exportRun(a *session.App, ctx context.Context, cmd *cobra.Command, f *exportFlags, name, entity string) error {
	switch {
	case f.clear == (f.seal != ""):
		return outcome.Hinted(outcome.Usagef(cmd, "a document holds all that the run has seen: say --seal KEY, or --clear"), "\"openssl rand -hex 32\" makes a key.")
	case f.life <= 0 || f.life > transfer.MaxTokenLife:
		return outcome.Usagef(cmd, "--life %v: it must be above 0, and at most %v", f.life, transfer.MaxTokenLife)
	}
	if err := subject.ValidateEntity(f.issuer); f.issuer != "" && err != nil {
		return outcome.Usagef(cmd, "--issuer: %w", err)
	}
	seal, err := fileKey(a, cmd, f.seal)
	if err != nil {
		return err
	}
	codec := state.Codec{Seal: seal}
	if err := CheckEntity(cmd, entity); err != nil {
		return err
	}
	s, err := a.Open(ctx, cmd, session.Options{Entity: a.DefaultFrom(), Signed: true, Config: MovingClient(a, cmd)})
	if err != nil {
		return err
	}
	defer s.Close()
	out, err := openOut(a, ctx, s, f.out)
	if err != nil {
		return err
	}
	defer out.discard()
	runs, err := Open(a, cmd, s)
	if err != nil {
		return err
	}
	rec, h, err := runs.Find(ctx, name, entity)
	if err != nil {
		return err
	}
	c, err := ownRecord(a, runs, rec)
	if err != nil {
		return err
	}
	if f.clear && h.Sealed != "" { // before the run stops, and before anything is written
		a.Term.Warn("run %s is stored encrypted here, and %s will not be: anyone who has it can read all that the run has seen", ShortRun(h.Run), where(f.out))
	}
	var file []byte
	if f.platform == "" {
		c = c.Strip()
		if p := c.Doc.Provenance; p != nil {
			p.SourceRuntimeVersion, p.CapturedBy = a.Version, a.DefaultFrom()
		}
		if file, err = codec.Marshal(c); err != nil {
			return err
		}
	} else if file, err = handOver(a, ctx, s, f, codec, h); err != nil {
		return err
	}
	if err := out.write(ctx, file); err != nil {
		if f.platform != "" {
			err = outcome.Hinted(err, "Run %s stands still, and the file was not handed out: the same \"aeemesh runs export\" writes it again, \"aeemesh runs recall %s --sure\" takes the run back.", ShortRun(h.Run), ShortRun(h.Run))
		}
		return err
	}
	if f.platform == "" {
		a.Term.Good("run %s of %s is written to %s, as a copy", ShortRun(h.Run), h.Entity, where(f.out))
		return nil
	}
	a.Term.Good("run %s of %s stands still; %s may import %s within %v", ShortRun(h.Run), h.Entity, f.platform, where(f.out), f.life)
	open := ""
	if f.seal != "" {
		open = " --seal KEY"
	}
	a.Term.Steps("Next:",
		"aeemesh runs import FILE --receipt RECEIPT"+open+"     # there",
		"aeemesh runs confirm RECEIPT                   # here, with what it wrote")
	return nil
}

// fileKey returns the key of --seal, which encrypts a file; nil if ref is empty.
func fileKey(a *session.App, cmd *cobra.Command, ref string) (*state.Keyring, error) {
	if ref == "" {
		return nil, nil
	}
	secret, err := a.StateSecret(ref)
	if err != nil {
		return nil, outcome.Usagef(cmd, "--seal: %w", err)
	}
	return state.NewKeyring(state.Key{Secret: secret})
}

// handOver exports a run for transfer to another platform.
func handOver(a *session.App, ctx context.Context, s *session.Session, f *exportFlags, codec state.Codec, h state.Header) ([]byte, error) {
	issuer := cmp.Or(f.issuer, h.Entity)
	signer, err := tokenSigner(a, issuer)
	if err != nil {
		return nil, err
	}
	a.Term.Progress("stopping run %s", ShortRun(h.Run))
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	file, err := s.Node.Export(ctx, h.ID(), mesh.ExportOptions{Platform: f.platform, Signer: signer, Issuer: issuer, Codec: codec, Life: f.life})
	switch {
	case errors.Is(err, mesh.ErrEnded):
		return nil, outcome.Hinted(err, "\"aeemesh result %s %s\" has its result.", h.TaskID, h.Entity)
	case errors.Is(err, mesh.ErrStopping):
		return nil, outcome.Hinted(err, "It stands still when its step has ended: then the same \"aeemesh runs export\" writes the file. \"aeemesh migrate %s --abort\" lets it go on.", ShortRun(h.Run))
	case err != nil:
		return nil, commandFailed(a, err, h.Entity)
	}
	return file, nil
}

// tokenSigner returns the key that signs tokens and receipts for an entity.
func tokenSigner(a *session.App, issuer string) (*sign.Signer, error) {
	signer, err := a.Signer(issuer)
	if err != nil {
		return nil, err
	}
	if signer == nil || signer.Alg() != sign.Ed25519 {
		return nil, outcome.Hinted(outcome.NotFound("there is no ed25519 key here that may speak for %s", issuer),
			"\"aeemesh keys new KID --from %s\" makes one; the other platform must trust it (\"aeemesh keys trust\").", issuer)
	}
	return signer, nil
}

// MovingClient is LaneClient with the platform's name, for transfers.
func MovingClient(a *session.App, cmd *cobra.Command) func(*session.Session, *mesh.Config) error {
	lane := a.LaneClient(cmd)
	return func(s *session.Session, cfg *mesh.Config) error {
		if err := lane(s, cfg); err != nil {
			return err
		}
		cfg.Durable.Platform = a.Platform
		return nil
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
)

// exportFlags say how a run is written down.
type exportFlags struct {
	platform, issuer, out, seal string
	clear                       bool
	life                        time.Duration
}

func (f *exportFlags) add(a *app, flags *pflag.FlagSet) {
	flags.StringVar(&f.platform, "for", "", "hand the run over to this `platform`: it stops here")
	flags.StringVar(&f.seal, "seal", "", "encrypt the file with the key `env:NAME or file:PATH`, which the other platform has too")
	flags.BoolVar(&f.clear, "clear", false, "leave the file readable, with all that is in it")
	flags.StringVar(&f.issuer, "issuer", "", "the `entity` that signs the token (default the run's agent)")
	flags.DurationVar(&f.life, "life", state.MaxTokenLife, "how long the file may be imported; at most 15m")
	a.addPlatformFlag(flags)
}

func (a *app) runMoveCommands() []*cobra.Command {
	return []*cobra.Command{a.runsExportCommand(), a.runsImportCommand(), a.runsReceiptCommand(), a.runsConfirmCommand(), a.runsRecallCommand()}
}

func (a *app) runsExportCommand() *cobra.Command {
	f := &exportFlags{}
	var entity string
	c := connects(&cobra.Command{
		Use:   "export RUN",
		Short: "Write a run into a file, as a copy or to hand it over",
		Long: `Writes the last checkpoint of a run, an AAIF Agent State document, into a file
or an object store (object:BUCKET/NAME). Without --for it is a copy, and the
run goes on.

With --for the run is handed over to another platform. It stops, its status is
migrating, and the file has a token that lets that platform import it once,
within 15 minutes. Then bring back the receipt that "runs import" writes there
("runs confirm"): that the run was accepted, and in the end its result. A run
that is not wanted there is refused with "runs import --refuse", whose receipt
brings it back.`,
		Example: `  aeemesh runs export 0f4c --clear -o run.json
  aeemesh runs export 0f4c --for paris --seal file:paris.key -o run.json
  aeemesh runs export 0f4c --for paris --clear -o object:exchange/0f4c`,
		Args: arguments("RUN"),
		RunE: a.do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return a.exportRun(ctx, cmd, f, args[0], entity)
		}),
	})
	c.Flags().StringVarP(&f.out, "out", "o", "-", "`file` to write, object:BUCKET/NAME, or - for standard output")
	f.add(a, c.Flags())
	a.entityFlag(c, &entity)
	a.addStateKeyFlag(c.Flags())
	a.addSignFlags(c.Flags(), signAll)
	return c
}

func (a *app) exportRun(ctx context.Context, cmd *cobra.Command, f *exportFlags, name, entity string) error {
	switch {
	case f.clear == (f.seal != ""):
		return hinted(usagef(cmd, "a document holds all that the run has seen: say --seal KEY, or --clear"), "\"openssl rand -hex 32\" makes a key.")
	case f.life <= 0 || f.life > state.MaxTokenLife:
		return usagef(cmd, "--life %v: it must be above 0, and at most %v", f.life, state.MaxTokenLife)
	}
	codec := state.Codec{}
	if f.seal != "" {
		secret, err := a.stateSecret(f.seal)
		if err != nil {
			return usagef(cmd, "--seal %s: %w", f.seal, err)
		}
		if codec.Seal, err = state.NewKeyring(state.Key{Secret: secret}); err != nil {
			return err
		}
	}
	if err := checkEntity(cmd, entity); err != nil {
		return err
	}
	s, err := a.open(ctx, cmd, sessionOptions{entity: a.defaultFrom(), signed: true, config: a.movingClient(cmd)})
	if err != nil {
		return err
	}
	defer s.close()
	runs, err := a.runs(cmd, s)
	if err != nil {
		return err
	}
	rec, h, err := runs.find(ctx, name, entity)
	if err != nil {
		return err
	}
	var file []byte
	if f.platform == "" {
		c, err := runs.decode(rec)
		if err != nil {
			return err
		}
		if file, err = codec.Marshal(c.Strip()); err != nil {
			return err
		}
	} else if file, err = a.handOver(ctx, cmd, s, f, codec, h); err != nil {
		return err
	}
	if err := a.writeOut(ctx, s, f.out, file); err != nil {
		return err
	}
	if f.platform == "" {
		a.term.good("run %s of %s is written to %s, as a copy", shortRun(h.Run), h.Entity, where(f.out))
		return nil
	}
	a.term.good("run %s of %s stands still; %s may import %s within %v", shortRun(h.Run), h.Entity, f.platform, where(f.out), f.life)
	a.term.steps("Next:",
		"aeemesh runs import FILE --receipt RECEIPT     # there",
		"aeemesh runs confirm RECEIPT                   # here, with what it wrote")
	return nil
}

// handOver exports a run for another platform.
func (a *app) handOver(ctx context.Context, cmd *cobra.Command, s *session, f *exportFlags, codec state.Codec, h state.Header) ([]byte, error) {
	issuer := f.issuer
	if issuer == "" {
		issuer = h.Entity
	}
	signer, err := a.tokenSigner(issuer)
	if err != nil {
		return nil, err
	}
	a.term.progress("stopping run %s", shortRun(h.Run))
	file, err := s.node.Export(ctx, h.ID(), mesh.ExportOptions{Platform: f.platform, Signer: signer, Issuer: issuer, Codec: codec, Life: f.life})
	switch {
	case errors.Is(err, mesh.ErrEnded):
		return nil, hinted(err, "\"aeemesh result %s %s\" has its result.", h.TaskID, h.Entity)
	case err != nil:
		return nil, commandFailed(err, h.Entity)
	}
	return file, nil
}

// tokenSigner is the key that signs tokens and receipts for an entity.
func (a *app) tokenSigner(issuer string) (*sign.Signer, error) {
	signer, err := a.signer(issuer)
	if err != nil {
		return nil, err
	}
	if signer == nil || signer.Alg() != sign.Ed25519 {
		return nil, hinted(fmt.Errorf("there is no ed25519 key here that may speak for %s", issuer),
			"\"aeemesh keys new KID --from %s\" makes one; the other platform must trust it (\"aeemesh keys trust\").", issuer)
	}
	return signer, nil
}

// movingClient is laneClient with the platform's name.
func (a *app) movingClient(cmd *cobra.Command) func(*session, *mesh.Config) error {
	lane := a.laneClient(cmd)
	return func(s *session, cfg *mesh.Config) error {
		if err := lane(s, cfg); err != nil {
			return err
		}
		cfg.Durable.Platform = a.platform
		return nil
	}
}

func (a *app) runsImportCommand() *cobra.Command {
	var receipt, refuse string
	c := connects(&cobra.Command{
		Use:   "import FILE",
		Short: "Take in a run that another platform hands over, or a copy of one",
		Long: `Imports what "runs export" has written (FILE, object:BUCKET/NAME, or - for
standard input). A file with a migration token hands a run over: the token must
be signed with a key that is trusted here, for this platform, unexpired and
unused, and the agent must be served here. Then the run goes on, and the
receipt tells its source.

A file without a token is a copy: it begins a run of its own.`,
		Example: `  aeemesh runs import run.json --receipt receipt.json
  aeemesh runs import run.json --refuse "no room" --receipt receipt.json
  aeemesh runs import copy.json`,
		Args: arguments("FILE"),
		RunE: a.do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return a.importRun(ctx, cmd, args[0], receipt, refuse, cmd.Flags().Changed("refuse"))
		}),
	})
	c.Flags().StringVar(&receipt, "receipt", "", "`file` for the receipt (default none; \"runs receipt\" writes one later)")
	c.Flags().StringVar(&refuse, "refuse", "", "refuse the run for ever, for this `reason`")
	a.addReceiverFlags(c)
	return c
}

// addReceiverFlags are for commands that take runs in.
func (a *app) addReceiverFlags(c *cobra.Command) {
	a.addPlatformFlag(c.Flags())
	c.Flags().StringArrayVar(&a.issuers, "issuer", nil, "`PATTERN` of entities that may hand over runs of any agent; repeatable (default: each agent its own)")
	a.addStateKeyFlag(c.Flags())
	a.addSignFlags(c.Flags(), signAll)
}

// receiver takes runs in, for a session.
func (a *app) receiver(cmd *cobra.Command, s *session, known map[string]string) (*handoff.Receiver, error) {
	m, err := a.subjects()
	if err != nil {
		return nil, err
	}
	js, err := a.jetStream(s.conn)
	if err != nil {
		return nil, err
	}
	return s.node.Receiver(mesh.ReceiverOptions{Handoffs: jetstream.NewHandoffs(js, m), Platform: a.platform, Issuers: a.issuers, Agents: known})
}

func (a *app) importRun(ctx context.Context, cmd *cobra.Command, from, receipt, reason string, refuse bool) error {
	s, err := a.open(ctx, cmd, sessionOptions{entity: a.defaultFrom(), signed: true, config: a.movingClient(cmd)})
	if err != nil {
		return err
	}
	defer s.close()
	file, err := a.readIn(ctx, s, from)
	if err != nil {
		return err
	}
	r, err := a.receiver(cmd, s, nil)
	if err != nil {
		return err
	}
	var status handoff.Status
	if refuse {
		status, err = r.Decline(ctx, file, reason)
	} else if _, _, tokenErr := state.TakeToken(file); errors.Is(tokenErr, state.ErrTokenInvalid) {
		return a.importCopy(ctx, cmd, s, file)
	} else {
		status, err = r.Import(ctx, file)
	}
	if err != nil {
		return importFailed(err)
	}
	if receipt != "" {
		if err := a.writeReceipt(ctx, s, r, status.Handoff, receipt); err != nil {
			return err
		}
	}
	if a.term.json {
		return a.term.object(status)
	}
	if status.Phase == state.PhaseRefused {
		a.term.good("run %s is refused", shortRun(status.Run))
		return nil
	}
	a.term.good("run %s of %s goes on here", shortRun(status.Run), status.Entity)
	if receipt == "" {
		a.term.hint(fmt.Sprintf("Its source waits for a receipt: \"aeemesh runs receipt %s -o FILE\".", shortRun(status.Run)))
	}
	return nil
}

// importCopy begins a run of its own from a document.
func (a *app) importCopy(ctx context.Context, cmd *cobra.Command, s *session, file []byte) error {
	ring, err := a.keyring(cmd)
	if err != nil {
		return err
	}
	c, err := state.Codec{Seal: ring}.Decode(file)
	if err != nil {
		return importFailed(err)
	}
	receipt, err := s.node.Fork(ctx, c, state.ForkOf{})
	if err != nil {
		return laneError(err)
	}
	if a.term.json {
		return a.term.object(receipt)
	}
	a.term.line("%s", receipt.TaskID)
	a.term.good("run %s goes on from the copy, as task %s", shortRun(receipt.Run), receipt.TaskID)
	return nil
}

// importFailed says what to do about a refusal.
func importFailed(err error) error {
	for _, known := range []struct {
		err  error
		hint string
	}{
		{state.ErrTokenExpired, "The source writes a new file with the same \"aeemesh runs export\"; the clocks may differ, too (\"aeemesh doctor\")."},
		{state.ErrTokenAudience, "It is for another platform; --platform says which one this is."},
		{state.ErrTokenKey, "Trust the source's key: \"aeemesh keys trust FILE\"; it must speak for the run's agent, or for an --issuer."},
		{state.ErrTokenUsed, "The run was taken in, or refused, before: \"aeemesh handoff list\"."},
		{state.ErrRunExists, "\"aeemesh runs list\" shows it."},
		{state.ErrUnknownAgent, "Start its worker first: \"aeemesh worker FILE\"."},
		{state.ErrSealed, "Give the key with --state-key env:NAME or file:PATH."},
		{state.ErrChecksum, "The file was changed on its way."},
	} {
		if errors.Is(err, known.err) {
			return hinted(err, "%s", known.hint)
		}
	}
	return laneError(err)
}

func (a *app) runsReceiptCommand() *cobra.Command {
	var out string
	c := connects(&cobra.Command{
		Use:   "receipt RUN",
		Short: "Write the receipt of a run that was handed over to here",
		Long: `Writes this platform's signed word on a run that was imported, for its source:
that it was accepted or refused, or, once the run has ended, how. RUN is its
id, or the handoff's ("aeemesh handoff list").`,
		Example: `  aeemesh runs receipt 0f4c -o receipt.json`,
		Args:    arguments("RUN"),
		RunE: a.do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			s, err := a.open(ctx, cmd, sessionOptions{entity: a.defaultFrom(), signed: true, config: a.movingClient(cmd)})
			if err != nil {
				return err
			}
			defer s.close()
			r, err := a.receiver(cmd, s, nil)
			if err != nil {
				return err
			}
			id, err := findHandoff(ctx, r, args[0])
			if err != nil {
				return err
			}
			return a.writeReceipt(ctx, s, r, id, out)
		}),
	})
	c.Flags().StringVarP(&out, "out", "o", "-", "`file` to write, or - for standard output")
	a.addReceiverFlags(c)
	return c
}

// findHandoff is the one handoff that a person means.
func findHandoff(ctx context.Context, r *handoff.Receiver, name string) (string, error) {
	all, err := r.List(ctx)
	if err != nil {
		return "", laneError(err)
	}
	var last handoff.Status
	for _, h := range all {
		if (strings.HasPrefix(h.Handoff, name) || strings.HasPrefix(h.Run, name)) && h.Since.After(last.Since) {
			last = h
		}
	}
	if last.Handoff == "" {
		return "", hinted(fmt.Errorf("no run %s was handed over to here", printable(name)), "\"aeemesh handoff list\" shows those that were.")
	}
	return last.Handoff, nil
}

// writeReceipt signs this platform's word.
func (a *app) writeReceipt(ctx context.Context, s *session, r *handoff.Receiver, id, out string) error {
	status, err := r.Get(ctx, id)
	if err != nil {
		return err
	}
	signer, err := a.tokenSigner(status.Entity)
	if err != nil {
		return err
	}
	receipt, err := r.Receipt(ctx, id, status.Entity, signer)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(receipt, "", "  ")
	if err != nil {
		return err
	}
	if err := a.writeOut(ctx, s, out, append(data, '\n')); err != nil {
		return err
	}
	if out != "-" {
		a.term.good("the receipt that the run was %s is in %s", receipt.Outcome, where(out))
	}
	return nil
}

func (a *app) runsConfirmCommand() *cobra.Command {
	c := connects(&cobra.Command{
		Use:   "confirm RECEIPT",
		Short: "Bring another platform's receipt back to a run that was exported for it",
		Long: `Takes the receipt that "runs import" or "runs receipt" has written on the other
platform. Accepted: the run is there. Refused: it goes on here. Ended: its
result is given to whoever has sent the task.`,
		Example: `  aeemesh runs confirm receipt.json`,
		Args:    arguments("RECEIPT"),
		RunE: a.do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			s, err := a.open(ctx, cmd, sessionOptions{entity: a.defaultFrom(), signed: true, config: a.movingClient(cmd)})
			if err != nil {
				return err
			}
			defer s.close()
			data, err := a.readIn(ctx, s, args[0])
			if err != nil {
				return err
			}
			var receipt handoff.Receipt
			if err := json.Unmarshal(data, &receipt); err != nil || receipt.Verdict == "" {
				return hinted(fmt.Errorf("%s is no receipt", where(args[0])), "\"aeemesh runs receipt RUN\" writes one, on the other platform.")
			}
			signer, err := a.signer(receipt.Entity)
			if err != nil {
				return err
			}
			run, err := s.node.Confirm(ctx, receipt, mesh.ConfirmOptions{Issuers: a.issuers, Signer: signer})
			if err != nil {
				return importFailed(err)
			}
			if a.term.json {
				return a.term.object(phaseLine{Run: receipt.Run, Phase: run.Mesh.Migration.Phase, At: run.Mesh.Migration.Since, To: run.Mesh.Migration.Target, Detail: run.Mesh.Migration.Detail})
			}
			a.term.good("run %s: %s; it is now %s", shortRun(receipt.Run), receipt.Outcome, run.Doc.Status)
			return nil
		}),
	})
	a.addReceiverFlags(c)
	return c
}

func (a *app) runsRecallCommand() *cobra.Command {
	var entity, reason string
	var sure bool
	c := connects(&cobra.Command{
		Use:   "recall RUN --sure",
		Short: "Take back a run whose file is lost, without the other platform's word",
		Long: `Lets a run that was exported with --for go on here. Only the other platform can
say that it has not imported the file, and never will: "runs import --refuse"
there writes the receipt that brings the run back safely. If you recall it and
the file is imported after all, two copies of the run go on, and every effect
may happen twice.`,
		Example: `  aeemesh runs recall 0f4c --sure --reason "the file never left this disk"`,
		Args:    arguments("RUN"),
		RunE: a.do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if !sure {
				return hinted(usagef(cmd, "--sure is missing: nobody but you can know that the file will not be imported"),
					"\"aeemesh runs import FILE --refuse REASON\" on the other platform makes it certain.")
			}
			s, err := a.open(ctx, cmd, sessionOptions{entity: a.defaultFrom(), signed: true, config: a.movingClient(cmd)})
			if err != nil {
				return err
			}
			defer s.close()
			runs, err := a.runs(cmd, s)
			if err != nil {
				return err
			}
			_, h, err := runs.find(ctx, args[0], entity)
			if err != nil {
				return err
			}
			run, err := s.node.Recall(ctx, h.ID(), "recalled by "+a.defaultFrom()+": "+reason)
			if err != nil {
				return err
			}
			if a.term.json {
				return a.term.object(phaseLine{Run: h.Run, Phase: run.Mesh.Migration.Phase, At: run.Mesh.Migration.Since, Detail: run.Mesh.Migration.Detail})
			}
			a.term.good("run %s is back; it is now %s", shortRun(h.Run), run.Doc.Status)
			return nil
		}),
	})
	c.Flags().BoolVar(&sure, "sure", false, "the file has not been imported, and will not be")
	c.Flags().StringVar(&reason, "reason", "", "how you know, for the record")
	a.entityFlag(c, &entity)
	a.addReceiverFlags(c)
	return c
}

// maxRunFile bounds what is read as a run or a receipt.
const maxRunFile = 64 << 20

// object is the bucket and the name in object:BUCKET/NAME.
func object(name string) (bucket, key string, ok bool) {
	rest, ok := strings.CutPrefix(name, "object:")
	bucket, key, found := strings.Cut(rest, "/")
	return bucket, key, ok && found && bucket != "" && key != ""
}

func where(name string) string {
	if name == "-" {
		return "standard output"
	}
	return name
}

// writeOut writes a file that only its owner may read, an object, or standard
// output.
func (a *app) writeOut(ctx context.Context, s *session, name string, data []byte) error {
	bucket, key, isObject := object(name)
	switch {
	case name == "-":
		_, err := a.term.data.Write(append(data[:len(data):len(data)], '\n'))
		return err
	case !isObject:
		return os.WriteFile(name, data, 0o600)
	}
	store, err := a.objects(ctx, s, bucket)
	if err != nil {
		return err
	}
	_, err = store.PutBytes(ctx, key, data)
	return err
}

// readIn reads a file, an object, or standard input.
func (a *app) readIn(ctx context.Context, s *session, name string) ([]byte, error) {
	bucket, key, isObject := object(name)
	if !isObject {
		return a.readFile(name, maxRunFile)
	}
	store, err := a.objects(ctx, s, bucket)
	if err != nil {
		return nil, err
	}
	r, err := store.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, maxRunFile))
}

func (a *app) objects(ctx context.Context, s *session, bucket string) (natsjs.ObjectStore, error) {
	js, err := a.jetStream(s.conn)
	if err != nil {
		return nil, err
	}
	store, err := js.ObjectStore(ctx, bucket)
	if errors.Is(err, natsjs.ErrBucketNotFound) {
		return nil, hinted(fmt.Errorf("there is no object store %s", printable(bucket)), "\"nats object add %s\" makes one.", bucket)
	}
	return store, err
}

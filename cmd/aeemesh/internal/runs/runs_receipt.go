package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
)

func runsReceiptCommand(a *session.App) *cobra.Command {
	var out string
	c := session.Connects(&cobra.Command{
		Use:   "receipt RUN",
		Short: "Write the receipt of a run that was transferred to here",
		Long: `Writes this platform's signed verdict on an imported run, for its source:
that it was accepted or refused, or, once the run has ended, how. RUN is its
id, its task's, or the handoff's ("aeemesh handoff list").`,
		Example: `  aeemesh runs receipt 0f4c -o receipt.json`,
		Args:    outcome.Arguments("RUN"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			s, err := a.Open(ctx, cmd, session.Options{Entity: a.DefaultFrom(), Signed: true, Config: MovingClient(a, cmd)})
			if err != nil {
				return err
			}
			defer s.Close()
			r, err := ReceiverOf(a, s, nil)
			if err != nil {
				return err
			}
			id, err := findHandoff(ctx, r, args[0])
			if err != nil {
				return err
			}
			to, err := openOut(a, ctx, s, out)
			if err != nil {
				return err
			}
			defer to.discard()
			return writeReceipt(a, ctx, r, id, out, to)
		}),
	})
	c.Flags().StringVarP(&out, "out", "o", "-", "`file` to write, or - for standard output")
	AddReceiverFlags(a, c)
	return c
}

// findHandoff returns the one handoff that a person means by a name.
func findHandoff(ctx context.Context, r *handoff.Receiver, name string) (string, error) {
	all, err := r.List(ctx)
	if err != nil {
		return "", session.LaneError(err)
	}
	return meantHandoff(all, name)
}

// meantHandoff is findHandoff in a list. Of several handoffs of one run it returns the latest.
func meantHandoff(all []handoff.Status, name string) (string, error) {
	var last handoff.Status
	var runs []string
	for _, h := range all {
		meant := strings.HasPrefix(h.Handoff, name) || strings.HasPrefix(h.Run, name) || h.Run == state.RunID(h.Entity, name)
		if meant && h.Since.After(last.Since) {
			last = h
		}
		if meant && !slices.Contains(runs, h.Run) {
			runs = append(runs, h.Run)
		}
	}
	if len(runs) > 1 {
		return "", severalRuns(name, runs)
	}
	if last.Handoff == "" {
		return "", outcome.Hinted(outcome.NotFound("no run %s was transferred to here", term.Printable(name)), "\"aeemesh handoff list\" shows those that were.")
	}
	return last.Handoff, nil
}

// writeReceipt writes a receipt that this platform signs.
func writeReceipt(a *session.App, ctx context.Context, r *handoff.Receiver, id, out string, to *outFile) error {
	status, err := r.Get(ctx, id)
	if err != nil {
		return err
	}
	signer, err := tokenSigner(a, status.Entity)
	if err != nil {
		return err
	}
	receipt, err := r.Receipt(ctx, id, status.Entity, signer)
	if err != nil {
		return receiptFailed(err)
	}
	data, err := json.MarshalIndent(receipt, "", "  ")
	if err != nil {
		return err
	}
	if err := to.write(ctx, append(data, '\n')); err != nil {
		return err
	}
	if out != "-" {
		a.Term.Good("the receipt that the run was %s is in %s", receipt.Outcome, where(out))
	}
	return nil
}

// receiptFailed adds a hint to the error of a handoff that has no verdict yet.
func receiptFailed(err error) error {
	if !errors.Is(err, handoff.ErrNoVerdict) {
		return err
	}
	return outcome.Hinted(err, "An import that was cut off: the same \"aeemesh runs import FILE\" finishes it, or ends it with --refuse REASON. Over HTTPS its source decides; \"aeemesh handoff list\" shows it.")
}

func runsConfirmCommand(a *session.App) *cobra.Command {
	c := session.Connects(&cobra.Command{
		Use:   "confirm RECEIPT",
		Short: "Bring another platform's receipt back to an exported run",
		Long: `Takes the receipt that "runs import" or "runs receipt" has written on the other
platform. Accepted: the run is there. Refused: it goes on here. Ended: its
result is given to the sender of the task.`,
		Example: `  aeemesh runs confirm receipt.json`,
		Args:    outcome.Arguments("RECEIPT"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			s, err := a.Open(ctx, cmd, session.Options{Entity: a.DefaultFrom(), Signed: true, Config: MovingClient(a, cmd)})
			if err != nil {
				return err
			}
			defer s.Close()
			data, err := readIn(a, ctx, s, args[0])
			if err != nil {
				return err
			}
			var receipt handoff.Receipt
			if err := json.Unmarshal(data, &receipt); err != nil || receipt.Verdict == "" {
				return outcome.Hinted(fmt.Errorf("%s is no receipt", where(args[0])), "\"aeemesh runs receipt RUN\" writes one, on the other platform.")
			}
			signer, err := a.Signer(receipt.Entity)
			if err != nil {
				return err
			}
			run, err := s.Node.Confirm(ctx, receipt, mesh.ConfirmOptions{Issuers: a.Issuers, Signer: signer})
			if err != nil {
				return importFailed(err)
			}
			if a.Term.JSON {
				return a.Term.Object(phaseLine{Run: receipt.Run, Phase: run.Mesh.Migration.Phase, At: run.Mesh.Migration.Since, To: run.Mesh.Migration.Target, Detail: run.Mesh.Migration.Detail})
			}
			a.Term.Good("run %s: %s; it is now %s", ShortRun(receipt.Run), receipt.Outcome, run.Doc.Status)
			return nil
		}),
	})
	AddReceiverFlags(a, c)
	return c
}

func runsRecallCommand(a *session.App) *cobra.Command {
	var entity, reason string
	var sure, lost bool
	c := session.Connects(&cobra.Command{
		Use:   "recall RUN --sure",
		Short: "Take back an exported run without the other platform's receipt",
		Long: `Lets a run that was exported with --for go on here. Only the other platform can
say that it has not imported the file, and never will: "runs import --refuse"
there writes the receipt that brings the run back safely. If you recall it and
the file is imported after all, two copies of the run go on, and every effect
may happen twice. A run that the other platform has accepted, as its receipt
said ("runs confirm"), is not taken back, unless that platform is lost for good
(--even-accepted).`,
		Example: `  aeemesh runs recall 0f4c --sure --reason "the file never left this disk"`,
		Args:    outcome.Arguments("RUN"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if !sure {
				return outcome.Hinted(outcome.Usagef(cmd, "--sure is missing: only you can know that the file will not be imported"),
					"\"aeemesh runs import FILE --refuse REASON\" on the other platform makes it certain.")
			}
			o := session.Options{Entity: a.DefaultFrom(), Signed: true, Config: MovingClient(a, cmd)}
			return aboutRun(a, ctx, cmd, (*Store).Find, args[0], entity, o, func(s *session.Session, _ *Store, rec state.Record) error {
				run, err := s.Node.Recall(ctx, rec.ID, "recalled by "+a.DefaultFrom()+": "+reason, lost)
				if errors.Is(err, mesh.ErrAcceptedThere) {
					return outcome.Hinted(err, "\"aeemesh runs receipt %s -o FILE\" there writes its end, \"aeemesh runs confirm FILE\" here brings it back. If that platform is lost for good: --even-accepted.", ShortRun(rec.ID.Run))
				}
				if err != nil {
					return err
				}
				if a.Term.JSON {
					return a.Term.Object(phaseLine{Run: rec.ID.Run, Phase: run.Mesh.Migration.Phase, At: run.Mesh.Migration.Since, Detail: run.Mesh.Migration.Detail})
				}
				a.Term.Good("run %s is back; it is now %s", ShortRun(rec.ID.Run), run.Doc.Status)
				return nil
			})
		}),
	})
	c.Flags().BoolVar(&sure, "sure", false, "the file has not been imported, and will not be")
	c.Flags().BoolVar(&lost, "even-accepted", false, "even if the other platform has accepted the run: that platform is lost, and the run will not go on there")
	c.Flags().StringVar(&reason, "reason", "", "how you know, for the record")
	EntityFlag(c, &entity)
	AddReceiverFlags(a, c)
	return c
}

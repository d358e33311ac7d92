package envelopes

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/keys"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
)

// Command returns "aeemesh envelope".
func Command(a *session.App) *cobra.Command {
	return a.Holder(&cobra.Command{
		Use:   "envelope",
		Short: "Make, check, sign and convert AEE envelopes, offline",
		Long: `Works on AEE envelopes without a server. Every command reads files or standard
input: one envelope, several, or one a line, in JSON or CBOR (raw or in hex).`,
		Example: `  aeemesh envelope new agent.reviewer '{"path":"."}' | aeemesh envelope sign --sign ada | nats req agent.reviewer --force-stdin
  aeemesh envelope validate traffic.jsonl
  aeemesh envelope convert --to cbor --hex task.json`,
	}, newCommand(a), validateCommand(a), signCommand(a), verifyCommand(a),
		convertCommand(a), hashCommand(a), canonicalCommand(a), schemaCommand(a))
}

func newCommand(a *session.App) *cobra.Command {
	f := &MessageFlags{}
	var durable bool
	c := &cobra.Command{
		Use:   "new ENTITY [PAYLOAD|-|@FILE]",
		Short: "Make an envelope and print it",
		Long: `Makes an envelope with a fresh id and the time of now, and prints it as one line
of JSON. PAYLOAD is a JSON object, or text, which becomes {"text": …}; "-" reads
it from standard input, @FILE from a file.`,
		Example: `  aeemesh envelope new agent.reviewer '{"path":"."}' --intent code.review
  aeemesh envelope new bus.ops '{"done":true}' --type event --intent ops.backup.done
  aeemesh envelope new agent.reviewer hello --stream | nats req agent.reviewer --wait-for-empty --force-stdin`,
		Args:              outcome.Arguments("ENTITY", "[PAYLOAD|-|@FILE]"),
		ValidArgsFunction: session.Completing(a, CompleteMessage),
		RunE: a.Do(func(_ context.Context, cmd *cobra.Command, args []string) error {
			if err := subject.ValidateEntity(args[0]); err != nil {
				return outcome.Usagef(cmd, "%w", err)
			}
			arg := ""
			if len(args) == 2 {
				arg = args[1]
			}
			payload, err := ParsePayload(a, cmd, arg)
			if err != nil {
				return err
			}
			// It does not sign, but the sender is chosen in the same way as for
			// "send".
			if a.Sign.Kid = a.Env("AEEMESH_SIGN"); a.Sign.Kid == "" {
				a.Sign.Kid = session.SignAuto
			}
			e, err := f.Build(a, cmd, args[0], payload)
			if err == nil {
				err = bindTask(a, cmd, e, durable)
			}
			if err != nil {
				return err
			}
			return Print(a, e)
		}),
	}
	f.Add(c.Flags())
	c.Flags().StringVar(&f.Kind, "type", "", "task, result, event, error or stream (default task; event to a bus or a human)")
	c.Flags().StringVar(&f.replyTo, "reply-to", "", "`id` of the task that is answered")
	c.Flags().BoolVar(&f.Stream, "stream", false, "ask for stream envelopes")
	boundFlags(a, c, &durable)
	return keys.DirFlag(a, c, nil)
}

// boundFlags are --prefix and --durable for commands that make tasks offline.
func boundFlags(a *session.App, c *cobra.Command, durable *bool) {
	c.Flags().BoolVar(durable, "durable", false, "the task is for the durable lane, which it then names in requires.lane")
	c.Flags().StringVar(&a.Conn.Prefix, "prefix", "", "the mesh's subject `prefix`, which a task then names in requires.mesh")
	session.BindEnv(c.Flags(), "prefix", "AEEMESH_PREFIX")
}

// bindTask prepares a task for the mesh and the lane of boundFlags.
func bindTask(a *session.App, cmd *cobra.Command, e *envelope.Envelope, durable bool) error {
	if _, err := subject.New(a.Conn.Prefix); err != nil {
		return outcome.Usagef(cmd, "--prefix: %w", err)
	}
	return mesh.BindTask(e, a.Conn.Prefix, durable)
}

// Print prints an envelope as one line of JSON.
func Print(a *session.App, e *envelope.Envelope) error {
	b, err := e.AppendJSON(nil)
	if err != nil {
		return err
	}
	a.Term.Raw(b)
	return nil
}

// report is the result of "envelope validate" and "verify" for one
// envelope.
type report struct {
	Source   string             `json:"source"`
	Line     int                `json:"line,omitempty"`
	ID       string             `json:"id,omitempty"`
	Type     envelope.Type      `json:"type,omitempty"`
	From     string             `json:"from,omitempty"`
	To       string             `json:"to,omitempty"`
	Intent   string             `json:"intent,omitempty"`
	Valid    bool               `json:"valid"`
	Signed   *bool              `json:"signed,omitempty"`
	KID      string             `json:"kid,omitempty"`
	Code     envelope.Code      `json:"code,omitempty"`
	Error    string             `json:"error,omitempty"`
	Problems []envelope.Problem `json:"problems,omitempty"`
}

func (r *report) about(e *envelope.Envelope) {
	r.ID, r.Type, r.From, r.To, r.Intent = e.ID, e.Type, e.From, e.To, e.Intent
}

func validateCommand(a *session.App) *cobra.Command {
	var log bool
	c := &cobra.Command{
		Use:   "validate [FILE...]",
		Short: "Report everything that is wrong with envelopes",
		Long: `Checks envelopes against the AEE draft and reports every problem with the rule
that is broken: the number of the draft's validity rule, or fields, json, cbor.
With --log it takes MVE-5 log records, which no agent accepts.`,
		Example: `  aeemesh envelope validate task.json
  nats sub 'agent.>' --raw --count 100 | aeemesh envelope validate
  aeemesh envelope validate --log audit.jsonl`,
		RunE: a.Do(func(_ context.Context, _ *cobra.Command, args []string) error {
			return judgeEnvelopes(a, args, func(in input, r *report) {
				if log && !in.cbor {
					record, err := envelope.ParseLog(in.data)
					if err == nil {
						r.ID, r.Type, r.From, r.Intent = record.ID, record.Type, record.From, record.Intent
					}
					r.fail(err)
					return
				}
				e, err := in.parse()
				if err == nil {
					r.about(e)
					_, err = e.Requirements()
				}
				if err == nil {
					_, err = e.References()
				}
				r.fail(err)
			})
		}),
	}
	c.Flags().BoolVar(&log, "log", false, "take MVE-5 log records (v, id, type, from, intent)")
	return c
}

// fail records an error with its details.
func (r *report) fail(err error) {
	if err == nil {
		r.Valid = true
		return
	}
	var bad *envelope.InvalidError
	var problem *envelope.Error
	switch {
	case errors.As(err, &bad):
		r.Code, r.Problems = envelope.CodeInvalidEnvelope, bad.Problems
		p := bad.Partial()
		r.about(p)
	case errors.As(err, &problem):
		r.Code, r.Error = problem.Code, problem.Message
	case errors.Is(err, envelope.ErrTooLarge):
		r.Code, r.Error = envelope.CodeTooLarge, err.Error()
	default:
		r.Error = err.Error()
	}
}

// judgeEnvelopes reports on every envelope of the inputs; it fails if one is
// not good.
func judgeEnvelopes(a *session.App, files []string, judge func(input, *report)) error {
	good, bad := 0, 0
	err := eachInput(a, files, func(in input) error {
		r := report{Source: in.source, Line: in.line}
		judge(in, &r)
		if r.Valid {
			good++
		} else {
			bad++
		}
		if a.Term.JSON {
			return a.Term.Object(r)
		}
		printReport(a, r)
		return nil
	})
	switch {
	case err != nil:
		return err
	case good+bad == 0:
		return errors.New("there is no envelope in the input")
	case good+bad > 1:
		a.Term.Say("%d good, %d not", good, bad)
	}
	if bad > 0 {
		return outcome.ErrQuiet
	}
	return nil
}

func printReport(a *session.App, r report) {
	where := r.Source
	if r.Line > 0 {
		where = fmt.Sprintf("%s:%d", r.Source, r.Line)
	}
	what := term.Printable(fmt.Sprintf("%s %s from %s", r.Type, r.ID, r.From))
	if r.Valid {
		if r.Signed != nil {
			what += ", unsigned: from is only a claim"
			if *r.Signed {
				what = term.Printable(fmt.Sprintf("%s %s, signed by %s for %s", r.Type, r.ID, r.KID, r.From))
			}
		}
		a.Term.Line("%s %s: %s", a.Term.Mark("ok"), where, what)
		return
	}
	a.Term.Line("%s %s: %s", a.Term.Mark("fail"), where, r.Code)
	if r.Error != "" {
		a.Term.Line("     %s", term.Printable(r.Error))
	}
	for _, p := range r.Problems {
		a.Term.Line("     rule %s: %s", p.Rule, term.Printable(problemText(p)))
	}
}

func problemText(p envelope.Problem) string {
	if p.Field == "" {
		return p.Message
	}
	return p.Field + " " + p.Message
}

func signCommand(a *session.App) *cobra.Command {
	var durable bool
	c := &cobra.Command{
		Use:   "sign [FILE...]",
		Short: "Sign envelopes and print them",
		Long: `Signs envelopes with a key of your key directory and prints them as lines of
JSON. An existing signature is replaced. A mesh with a subject prefix takes
signed tasks only that name it: --prefix writes requires.mesh before it signs.
The work queue takes signed tasks only that are for it: --durable writes
requires.lane.`,
		Example: `  aeemesh envelope new agent.reviewer '{"path":"."}' | aeemesh envelope sign --sign ada
  aeemesh envelope sign --sign ada task.json > signed.json
  aeemesh envelope sign --sign ada --prefix acme task.json | nats req acme.agent.reviewer --force-stdin
  aeemesh envelope sign --sign ada --durable task.json | nats pub -J aee.work.normal.agent.reviewer --force-stdin`,
		RunE: a.Do(func(_ context.Context, cmd *cobra.Command, args []string) error {
			if a.Sign.Kid == session.SignNone {
				return outcome.Usagef(cmd, "--sign none signs nothing")
			}
			return Each(a, args, func(e *envelope.Envelope) error {
				signer, err := a.Signer(e.From)
				if err != nil {
					return err
				}
				if signer == nil {
					return outcome.Hinted(fmt.Errorf("no key here may speak for %s", e.From), "\"aeemesh keys new KID --from %s\" makes one; --sign KID takes another.", e.From)
				}
				e.Sig = nil
				if err := bindTask(a, cmd, e, durable); err != nil {
					return err
				}
				if err := signer.Sign(e); err != nil {
					return err
				}
				warnRefused(a, signer, e.From)
				return Print(a, e)
			})
		}),
	}
	boundFlags(a, c, &durable)
	a.AddSignFlags(c.Flags(), session.SignKey)
	return c
}

// warnRefused warns if the key's local trust record makes receivers refuse what it signs for an
// entity.
func warnRefused(a *session.App, signer *sign.Signer, from string) {
	keys, err := a.Keys()
	if err != nil {
		return
	}
	for _, key := range keys.Trusted {
		if key.KID != signer.KID() {
			continue
		}
		if why := key.Invalidity(time.Now()); why != "" {
			a.Term.Warn("receivers refuse this signature: key %q %s", key.KID, why)
		} else if !key.SpeaksFor(from) {
			a.Term.Warn("receivers refuse this signature: key %q may not speak for %s", key.KID, from)
		}
	}
}

func verifyCommand(a *session.App) *cobra.Command {
	var at string
	c := &cobra.Command{
		Use:   "verify [FILE...]",
		Short: "Check the signatures of envelopes",
		Long: `Checks signatures against your key directory, and says for each envelope whether
its sender is proven. An unsigned one passes unless --signatures is required.`,
		Example: `  aeemesh envelope verify signed.json
  aeemesh envelope verify --signatures required --json < traffic.jsonl
  aeemesh envelope verify --at 2026-01-31T12:00:00Z old.json   # was the key valid then?`,
		RunE: a.Do(func(_ context.Context, cmd *cobra.Command, args []string) error {
			now := time.Now()
			if at != "" {
				var err error
				if now, err = time.Parse(time.RFC3339, at); err != nil {
					return outcome.Usagef(cmd, "--at %q: it is a time such as 2026-01-31T12:00:00Z", at)
				}
			}
			verifier, err := a.Verifier()
			if err != nil {
				return err
			}
			return judgeEnvelopes(a, args, func(in input, r *report) {
				e, err := in.parse()
				if err != nil {
					r.fail(err)
					return
				}
				r.about(e)
				var who sign.Identity
				who, err = verifier.Verify(e, now)
				r.Signed, r.KID = &who.Signed, who.KID
				r.fail(err)
			})
		}),
	}
	c.Flags().StringVar(&at, "at", "", "the `time` at which keys must be valid (default now)")
	a.AddSignFlags(c.Flags(), session.SignVerify)
	return c
}

func convertCommand(a *session.App) *cobra.Command {
	var to string
	var asHex, pretty bool
	c := &cobra.Command{
		Use:   "convert [FILE...]",
		Short: "Convert envelopes between JSON and CBOR",
		Long: `Reads envelopes in JSON or CBOR, raw or in hex, and prints them in the other
encoding. Nothing is lost either way; unknown members stay.`,
		Example: `  aeemesh envelope convert --to cbor task.json > task.cbor
  aeemesh envelope convert --to cbor --hex task.json
  aeemesh envelope convert --to json task.cbor`,
		RunE: a.Do(func(_ context.Context, cmd *cobra.Command, args []string) error {
			if err := outcome.OneOf(cmd, "to", to, "json", "cbor"); err != nil {
				return err
			}
			if to == "cbor" && a.Term.JSON {
				return outcome.Usagef(cmd, "CBOR is no JSON: leave --json out")
			}
			if to == "cbor" && !asHex && a.Term.Data.TTY {
				return outcome.Usagef(cmd, "CBOR is no text: send it into a file, or give --hex")
			}
			return Each(a, args, func(e *envelope.Envelope) error {
				if to == "cbor" {
					b, err := e.AppendCBOR(nil)
					if err != nil {
						return err
					}
					if asHex {
						a.Term.Line("%s", hex.EncodeToString(b))
					} else {
						return a.Term.Bytes(b)
					}
					return nil
				}
				if !pretty || a.Term.JSON {
					return Print(a, e)
				}
				b, err := e.AppendJSON(nil)
				if err == nil {
					a.Term.Line("%s", term.Indented(b))
				}
				return err
			})
		}),
	}
	c.Flags().StringVar(&to, "to", "json", "json or cbor")
	c.Flags().BoolVar(&asHex, "hex", false, "print CBOR in hex")
	c.Flags().BoolVar(&pretty, "pretty", false, "print JSON on many lines, unless --json is given")
	return c
}

func hashCommand(a *session.App) *cobra.Command {
	return &cobra.Command{
		Use:   "hash [FILE...]",
		Short: "Print the hash that references to an envelope carry",
		Example: `  aeemesh envelope hash task.json
  aeemesh envelope hash --json < traffic.jsonl`,
		RunE: a.Do(func(_ context.Context, _ *cobra.Command, args []string) error {
			return Each(a, args, func(e *envelope.Envelope) error {
				h, err := e.Hash()
				if err != nil {
					return err
				}
				if a.Term.JSON {
					return a.Term.Object(map[string]string{"id": e.ID, "hash": h})
				}
				a.Term.Line("%s", h)
				return nil
			})
		}),
	}
}

func canonicalCommand(a *session.App) *cobra.Command {
	var signed bool
	c := &cobra.Command{
		Use:   "canonical [FILE...]",
		Short: "Print an envelope's canonical bytes (RFC 8785)",
		Example: `  aeemesh envelope canonical task.json | sha256sum
  aeemesh envelope canonical --signed task.json   # what a signature covers`,
		RunE: a.Do(func(_ context.Context, _ *cobra.Command, args []string) error {
			return Each(a, args, func(e *envelope.Envelope) error {
				var b []byte
				var err error
				if signed {
					b, err = sign.AppendSigned(nil, e)
				} else if b, err = e.AppendJSON(nil); err == nil {
					b, err = envelope.Canonical(b)
				}
				if err != nil {
					return err
				}
				if a.Term.JSON {
					a.Term.Raw(b)
					return nil
				}
				return a.Term.Bytes(b) // no newline: the exact bytes
			})
		}),
	}
	c.Flags().BoolVar(&signed, "signed", false, "only what a signature covers")
	return c
}

func schemaCommand(a *session.App) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of the envelope",
		Example: `  aeemesh envelope schema > aee-v1.schema.json`,
		Args:    outcome.Arguments(),
		RunE: a.Do(func(context.Context, *cobra.Command, []string) error {
			if a.Term.JSON {
				a.Term.Raw(envelope.Schema())
				return nil
			}
			a.Term.Data.Write(envelope.Schema())
			return nil
		}),
	}
}

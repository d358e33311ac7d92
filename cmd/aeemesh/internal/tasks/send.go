package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/await"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/envelopes"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/traffic"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// sendFlags are the flags of "send", beside those of the message.
type sendFlags struct {
	envelopes.MessageFlags
	envelope string
	cbor     bool
	retries  int
	detach   bool
	durable  bool
	at       string
	after    time.Duration
	due      time.Time // the time of --at
}

// SendCommand returns "aeemesh send".
func SendCommand(a *session.App) *cobra.Command {
	f := &sendFlags{}
	c := session.Connects(&cobra.Command{
		Use:   "send ENTITY [PAYLOAD|-|@FILE]",
		Short: "Send a task and print its result",
		Long: `Sends a task to an agent, signed if you have a key, waits for the result and
prints its payload. PAYLOAD is a JSON object, or text, which becomes {"text":
…}; "-" reads it from standard input, @FILE from a file. An error envelope is
printed as an error. The exit status is 4 if refused, 5 if timed out, 3 if not
found, 1 if failed. Ctrl-C asks the agent to stop.

With --durable the task is stored before it is worked on: it survives the death
of every worker, and waits for one if there is none. Its result can be read
later, from any machine, with "aeemesh result". Ctrl-C then stops the waiting,
not the task.

To a bus or a human it publishes an event, and there is nothing to wait for.`,
		Example: `  aeemesh send agent.reviewer '{"path":"."}'
  aeemesh send agent.writer "a haiku about queues" --stream
  aeemesh send agent.reviewer @task.json --intent code.review --requires '{"timeout_ms":60000}'
  aeemesh send agent.reviewer '{"path":"."}' --durable
  aeemesh send agent.reporter "the weekly report" --at 2026-12-01T08:00:00Z --detach
  aeemesh send bus.ops '{"done":true}' --intent ops.backup.done
  aeemesh send --envelope task.json --json

  # the same with the nats CLI:
  nats req agent.reviewer "$(aeemesh envelope new agent.reviewer '{"path":"."}')"
  nats req agent.writer --wait-for-empty --reply-timeout 5m "$(aeemesh envelope new agent.writer hello --stream)"
  nats pub -J aee.work.normal.agent.writer "$(aeemesh envelope new agent.writer hello)"      # durable`,
		Args:              outcome.Arguments("[ENTITY]", "[PAYLOAD]"),
		ValidArgsFunction: session.Completing(a, envelopes.CompleteMessage),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return sendMessage(a, ctx, cmd, f, args)
		}),
	})
	flags := c.Flags()
	flags.SortFlags = false
	f.Add(flags)
	flags.StringVar(&f.Kind, "type", "", "task or event (default task; event to a bus or a human)")
	flags.BoolVar(&f.Stream, "stream", false, "ask for stream envelopes and show them as they come")
	flags.BoolVar(&f.cbor, "cbor", false, "speak CBOR instead of JSON")
	addRetryFlag(flags, &f.retries)
	flags.BoolVarP(&f.durable, "durable", "d", false, "store the task before it is worked on, in JetStream")
	flags.StringVar(&f.at, "at", "", "durable, and not to begin before this `time` (RFC 3339)")
	flags.DurationVar(&f.after, "after", 0, "durable, and not to begin before this time has passed")
	flags.BoolVar(&f.detach, "detach", false, "do not wait: the reply goes to the sender's inbox, if that is a human; a durable task's to \"aeemesh result\"")
	flags.StringVar(&f.envelope, "envelope", "", "send this envelope, from a `file` or \"-\"; it keeps its id and signature")
	a.AddSignFlags(flags, session.SignAll)
	return c
}

// defaultRetries is how often a live task that no worker has begun is sent
// again: because the worker is stopping, its queue is full, or the only worker
// is being started.
const defaultRetries = 2

func addRetryFlag(flags *pflag.FlagSet, retries *int) {
	flags.IntVar(retries, "retries", defaultRetries, "how often to try again where nothing was done (busy, draining, no worker); never where a worker may have begun")
}

// onRetry prints each retry, if the user asked for retries or at a terminal.
func onRetry(a *session.App, cmd *cobra.Command, retries int) func(int, time.Duration, *envelope.Error) {
	tell := a.Term.Progress
	if cmd.Flags().Changed("retries") {
		tell = a.Term.Say
	}
	return func(attempt int, wait time.Duration, why *envelope.Error) {
		tell("%s: %s; try %d of %d in %v", why.Code, term.Printable(why.Message), attempt, retries, wait.Round(time.Millisecond))
	}
}

func sendMessage(a *session.App, ctx context.Context, cmd *cobra.Command, f *sendFlags, args []string) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	e, err := newMessage(a, cmd, f, args)
	if err != nil {
		return err
	}
	if f.durable && (e.Type != envelope.TypeTask || mesh.PublishesTo(e.To)) {
		return outcome.Usagef(cmd, "only a task to an agent or a service can be durable; %s has no worker", e.To)
	}
	s, err := a.Open(ctx, cmd, session.Options{Entity: e.From, Signed: true, Config: func(s *session.Session, cfg *mesh.Config) error {
		if e.Sig != nil {
			cfg.Signer = nil // it is signed already
		}
		if f.durable {
			return a.LaneClient(cmd)(s, cfg)
		}
		return nil
	}})
	if err != nil {
		return err
	}
	defer s.Close()
	if f.durable {
		return submitTask(s, ctx, e, f)
	}
	if e.Type != envelope.TypeTask || f.detach || mesh.PublishesTo(e.To) {
		return postMessage(s, ctx, e, f.cbor)
	}
	return exchangeTask(s, ctx, cmd, e, f)
}

// check refuses flags that exclude one another.
func (f *sendFlags) check(cmd *cobra.Command) (err error) {
	switch {
	case f.retries < 0:
		return outcome.Usagef(cmd, "--retries %d: it cannot be negative", f.retries)
	case f.after < 0:
		return outcome.Usagef(cmd, "--after %v: it cannot be negative", f.after)
	case f.at != "" && f.after > 0:
		return outcome.Usagef(cmd, "give --at or --after, not both")
	}
	if f.at != "" {
		if f.due, err = time.Parse(time.RFC3339, f.at); err != nil {
			return outcome.Usagef(cmd, "--at %s: it is a time such as 2026-12-01T08:00:00Z", f.at)
		}
		if f.due.After(jetstream.MaxDue) {
			return outcome.Usagef(cmd, "--at %s: the server keeps times until %s", f.at, jetstream.MaxDue.Format(time.RFC3339))
		}
	}
	f.durable = f.durable || f.at != "" || f.after > 0
	if f.durable && f.retries > 0 && cmd.Flags().Changed("retries") {
		return outcome.Usagef(cmd, "--retries is for live tasks; a durable one is tried again by its agent's own policy")
	}
	return nil
}

// newMessage returns the envelope to send: made from flags and arguments, or read.
func newMessage(a *session.App, cmd *cobra.Command, f *sendFlags, args []string) (*envelope.Envelope, error) {
	if f.envelope == "" {
		if len(args) == 0 {
			return nil, outcome.Usagef(cmd, "ENTITY is missing: name the receiver, such as agent.echo")
		}
		if err := subject.ValidateEntity(args[0]); err != nil {
			return nil, outcome.Usagef(cmd, "%w", err)
		}
		arg := ""
		if len(args) == 2 {
			arg = args[1]
		}
		payload, err := envelopes.ParsePayload(a, cmd, arg)
		if err != nil {
			return nil, err
		}
		return f.Build(a, cmd, args[0], payload)
	}
	var given []string
	for _, name := range envelopes.MessageFlagNames {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 0 {
		return nil, outcome.Usagef(cmd, "%s: the envelope has its own; it is sent as it is", strings.Join(given, ", "))
	}
	var found []*envelope.Envelope
	err := envelopes.Each(a, []string{f.envelope}, func(e *envelope.Envelope) error {
		found = append(found, e)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(found) > 1:
		return nil, fmt.Errorf("%s has %d envelopes, and one can be sent", f.envelope, len(found))
	case f.retries > 0 && found[0].Sig != nil && cmd.Flags().Changed("retries"):
		return nil, outcome.Usagef(cmd, "--retries makes new envelopes, and this one is signed")
	case len(args) > 1 || len(args) == 1 && args[0] != found[0].To:
		return nil, outcome.Usagef(cmd, "the envelope is addressed to %s: give neither another ENTITY nor a PAYLOAD", found[0].To)
	}
	return found[0], nil
}

// postMessage publishes an envelope that gets no answer.
func postMessage(s *session.Session, ctx context.Context, e *envelope.Envelope, cbor bool) error {
	post := s.Node.Post
	if cbor {
		post = s.Node.PostCBOR
	}
	if err := s.Confirm(func() error { return post(ctx, e) }); err != nil {
		return err
	}
	if s.App.Term.JSON {
		return envelopes.Print(s.App, e)
	}
	s.App.Term.Good("sent %s %s to %s, corr %s", e.Type, e.ID, e.To, e.Corr)
	return nil
}

// exchangeTask sends a task, shows its stream, and prints its result.
func exchangeTask(s *session.Session, ctx context.Context, cmd *cobra.Command, task *envelope.Envelope, f *sendFlags) error {
	a := s.App
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	opts := mesh.SendOptions{CBOR: f.cbor, Retries: f.retries, OnRetry: onRetry(a, cmd, f.retries)}
	if f.envelope != "" && !cmd.Flags().Changed("retries") {
		opts.Retries = 0 // a signed task must keep its id
	}
	view := traffic.StreamView{Term: a.Term, Out: a.Term.Data}
	if requires, _ := task.Requirements(); requires.Stream {
		opts.OnStream = view.Show
	}
	a.Term.Progress("sent %s %s to %s, corr %s", task.Type, task.ID, task.To, task.Corr)
	started := time.Now()
	waiting, stopWondering := await.Watch(ctx, a, s.Node, task.To, &opts)
	reply, err := s.Node.Send(waiting, task, opts)
	stopWondering()
	view.End()
	if err != nil {
		return outcome.WithReply(await.Unanswered(ctx, s, task.To, err), reply)
	}
	if err := printReply(a, reply, &view); err != nil || a.Term.JSON {
		return err
	}
	if isJob(task, reply) {
		a.Term.Hint(fmt.Sprintf("%s does it in the background. \"aeemesh result %s %s --follow\" waits for the result.", task.To, task.ID, task.To))
	}
	a.Term.Progress("%s from %s after %v", reply.Type, reply.From, time.Since(started).Round(time.Millisecond))
	return nil
}

// isJob reports whether a task was answered with a job id, under which its
// result will be stored (AAIF, io.mode async).
func isJob(task, reply *envelope.Envelope) bool {
	var job struct {
		ID      string `json:"job_id"`
		Replies string `json:"replies"`
	}
	return json.Unmarshal(reply.Payload, &job) == nil && job.ID == task.ID && job.Replies != ""
}

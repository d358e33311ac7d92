package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh"
)

// watchFlags are the flags of "watch".
type watchFlags struct {
	corr, entity, intent, kind string
	since                      time.Duration
	payload, heartbeats        bool
	count                      int
}

// Command is "aeemesh watch".
func Command(a *session.App) *cobra.Command {
	f := &watchFlags{}
	c := session.Connects(&cobra.Command{
		Use:   "watch",
		Short: "Show live traffic",
		Long: `Shows the envelopes that go over the mesh, a line each: tasks, plain questions,
control messages, replies, broadcasts, people's inboxes. It listens only, and
takes no task away from a worker. --since first replays the broadcasts and
inboxes that are stored (live tasks and replies are not).

While it watches the subject of an entity that has no worker, NATS does not tell
senders that there is no worker: they wait until their timeout.

Only "signed KID" is verified, with the keys that are trusted here; in any other
envelope, from proves nothing. Heartbeats, and what the workers of one
agent ask each other, are left out unless you ask for them. Payloads are shown
only with --payload.`,
		Example: `  aeemesh watch
  aeemesh watch --corr 01JFB2QX0K8X5K6ZJ9G2C0C1MW
  aeemesh watch --entity agent.reviewer --type error --payload
  aeemesh watch --since 10m --intent 'mesh.task.*' --json

  # with the nats CLI:
  nats sub 'agent.>'
  nats sub --stream AEE_BUS --since 10m 'bus.>'`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error { return watchTraffic(a, ctx, cmd, f) }),
	})
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.corr, "corr", "", "only this correlation `id`, or its end")
	flags.StringVar(&f.entity, "entity", "", "only what this `entity` sends or is sent")
	flags.StringVar(&f.intent, "intent", "", "only this intent; \"code.*\" is everything under code")
	flags.StringVar(&f.kind, "type", "", "only this type: task, result, event, error or stream")
	flags.DurationVar(&f.since, "since", 0, "first replay what was stored in the last `duration`")
	flags.BoolVar(&f.payload, "payload", false, "show payloads too")
	flags.BoolVar(&f.heartbeats, "heartbeats", false, "show the agents' heartbeats too")
	flags.IntVar(&f.count, "count", 0, "end after so many envelopes (default never)")
	a.AddSignFlags(flags, session.SignShared)
	return c
}

// Sighting is one message that watch has seen.
type Sighting struct {
	At      time.Time
	Subject string
	Env     *envelope.Envelope
	By      Voucher
	stored  bool
}

// watchQueue is how many messages may wait to be printed; further ones are
// dropped, counted and reported as missed.
const watchQueue = 8192

func watchTraffic(a *session.App, ctx context.Context, cmd *cobra.Command, f *watchFlags) error {
	if f.kind != "" {
		if err := outcome.OneOf(cmd, "type", f.kind, "task", "result", "event", "error", "stream"); err != nil {
			return err
		}
	}
	if f.entity != "" {
		if err := subject.ValidateEntity(f.entity); err != nil {
			return outcome.Usagef(cmd, "--entity: %w", err)
		}
	}
	if f.since < 0 || f.count < 0 {
		return outcome.Usagef(cmd, "--since and --count cannot be negative")
	}
	m, err := a.Subjects()
	if err != nil {
		return err
	}
	gone := make(chan struct{})
	conn, err := a.Connect(ctx, cmd, session.QuietAboutPermissions(session.ConnectionStatus(a.Term, true)), nats.ClosedHandler(func(*nats.Conn) { close(gone) }))
	if err != nil {
		return err
	}
	defer conn.Close()
	ring, stop, err := voucherRing(a, ctx, conn)
	if err != nil {
		return err
	}
	defer stop()
	w := &watcher{app: a, flags: f, subjects: m, ring: ring, seen: map[string]bool{}, quick: inJSON(f.corr)}
	live := make(chan *nats.Msg, watchQueue)
	patterns, err := w.patterns()
	if err != nil {
		return outcome.Usagef(cmd, "%w", err)
	}
	var stored []string
	if f.since > 0 {
		// This comes before the subscription to all inboxes: the server reports
		// a request without responders to one subscription only, and that one
		// would get the report.
		if stored, err = w.stored(ctx, conn); err != nil {
			a.Term.Warn("nothing can be replayed: %s", outcome.Text(err))
			a.Term.Hint(outcome.Hint(err))
		}
	}
	if patterns, err = w.listen(ctx, conn, patterns, live); err != nil {
		return err
	}
	if len(stored) > 0 {
		if err := w.replay(ctx, conn, stored); err != nil {
			a.Term.Warn("what is stored cannot be replayed: %s", outcome.Text(err))
			a.Term.Hint(outcome.Hint(err))
		}
	}
	a.Term.Note("watching %s", strings.Join(patterns, ", "))
	for !w.finished() {
		select {
		case msg := <-live:
			w.message(time.Now(), msg.Subject, msg.Header, msg.Data, false)
		case <-gone:
			return errors.New("the connection is closed")
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// watcher filters and prints messages.
type watcher struct {
	app      *session.App
	flags    *watchFlags
	subjects subject.Map
	ring     *sign.Ring
	seen     map[string]bool // ids of replayed messages, which may arrive again live
	quick    []byte          // JSON without these bytes is not of the wanted corr
	shown    int
	hidden   []string // what is not shown for lack of permissions
}

// patterns returns the subjects to subscribe to. Replies go to inboxes, so
// inboxes with the default prefix are included.
func (w *watcher) patterns() ([]string, error) {
	m := w.subjects
	inbox := "_INBOX"
	if p := w.app.Conn.InboxPrefix; p != "" {
		inbox = strings.TrimSuffix(p, ".")
	}
	out := append(m.AllLive(), m.AllBus(), m.AllHuman(), m.AllAsk(), m.AllCtl(), m.AllWork(), m.AllReplies(), inbox+".>")
	if e := w.flags.entity; e != "" {
		switch subject.EntityType(e) {
		case subject.TypeAgent, subject.TypeService, subject.TypeBus, subject.TypeHuman:
		default:
			live, err := m.Live(e)
			if err != nil {
				return nil, err
			}
			out = append(out, live)
		}
	}
	return out, nil
}

// listen subscribes to the patterns that the user may read, and returns them.
// It prints in one line what is missing, including replays.
func (w *watcher) listen(ctx context.Context, conn *nats.Conn, patterns []string, live chan<- *nats.Msg) (heard []string, err error) {
	wait := w.app.Conn.Wait()
	all := make(chan *nats.Msg, watchQueue)
	go published(ctx, all, live)
	for _, p := range patterns {
		since := denial.Now(conn)
		if _, err := conn.ChanSubscribe(p, all); err != nil {
			return nil, fmt.Errorf("listen to %s: %w", p, err)
		}
		// The server reports a refused subscription before it answers what
		// comes after.
		if err := conn.FlushTimeout(wait); err != nil {
			return nil, fmt.Errorf("listen to %s: %w", p, err)
		}
		if _, refused := since.Find(func(d denial.Denial) bool { return d.Is(denial.Subscribe, p) }); refused {
			w.hidden = append(w.hidden, p)
			continue
		}
		heard = append(heard, p)
	}
	if len(w.hidden) > 0 {
		w.app.Term.Warn("not shown, for lack of permissions: %s", strings.Join(w.hidden, ", "))
		w.app.Term.Hint("What is left is shown. A user who may subscribe to all of it sees all of it.")
	}
	if len(heard) == 0 && w.flags.since == 0 {
		return nil, outcome.Refused("this NATS user may listen to nothing of the mesh")
	}
	return heard, nil
}

func (w *watcher) replay(ctx context.Context, conn *nats.Conn, stored []string) error {
	js, err := w.app.JetStream(conn)
	if err != nil {
		return err
	}
	since := notBefore(w.flags.corr, time.Now().Add(-w.flags.since))
	for msg, err := range jetstream.Replay(ctx, js, jetstream.ReplayOptions{Map: w.subjects, Subjects: stored, Since: since}) {
		if err != nil {
			return err
		}
		w.message(msg.Time, msg.Subject, msg.Header, msg.Data, true)
		if w.finished() {
			return nil
		}
	}
	return nil
}

// stored returns the subjects of which messages can be replayed. It reports
// those that cannot.
func (w *watcher) stored(ctx context.Context, conn *nats.Conn) ([]string, error) {
	js, err := w.app.JetStream(conn)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.app.Conn.Wait())
	defer cancel()
	var subjects, missing []string
	for _, s := range []struct{ name, all string }{
		{jetstream.StreamBus, w.subjects.AllBus()},
		{jetstream.StreamHuman, w.subjects.AllHuman()},
	} {
		plan, err := jetstream.Plan(ctx, js, jetstream.Options{Map: w.subjects, Only: []string{s.name}})
		if err != nil {
			return nil, err
		}
		if plan[0].Action == jetstream.ActionCreate {
			missing = append(missing, plan[0].Name)
			continue
		}
		if err := w.readable(ctx, js, s.all); errors.Is(err, jetstream.ErrDenied) {
			w.hidden = append(w.hidden, "what "+s.name+" has stored")
			continue
		}
		subjects = append(subjects, s.all)
	}
	if len(missing) > 0 {
		what := "nothing can be replayed"
		if len(subjects) > 0 {
			what = "only " + strings.Join(subjects, ", ") + " can be replayed"
		}
		w.app.Term.Warn("%s: there is no stream %s", what, strings.Join(missing, " and no "))
		w.app.Term.Hint("\"aeemesh apply\" makes what is missing; only what is sent from then on is stored.")
	}
	return subjects, nil
}

// readable fails if the user may not read the stored messages of some subjects,
// as a viewer may not read people's inboxes: the others are replayed without
// them.
func (w *watcher) readable(ctx context.Context, js natsjs.JetStream, subjects string) error {
	for _, err := range jetstream.Replay(ctx, js, jetstream.ReplayOptions{Map: w.subjects, Subjects: []string{subjects}, Since: time.Now()}) {
		return err
	}
	return nil
}

// message prints one message, if it is an envelope and passes the filters.
func (w *watcher) message(at time.Time, on string, header nats.Header, data []byte, stored bool) {
	if len(data) == 0 {
		return
	}
	var env *envelope.Envelope
	var err error
	address, addressErr := w.subjects.Parse(on)
	switch {
	case addressErr == nil && address.Kind == subject.Ask:
		env = asked(address.Entity, header, data)
	case strings.HasPrefix(header.Get("Content-Type"), envelope.ContentCBOR):
		env, err = envelope.ParseCBORLimits(data, received(data))
	case !mentions(data, w.quick):
		return // of many stored messages most are of other corrs
	default:
		env, err = envelope.ParseLimits(data, received(data))
	}
	if err != nil {
		w.app.Log.Debug("no envelope", "subject", on, "err", err)
		return
	}
	s := Sighting{at, on, env, Vouch(w.ring, env, at), stored}
	if !w.wants(s) {
		return
	}
	if key := on + " " + env.ID; stored {
		w.seen[key] = true
	} else if w.seen[key] {
		return
	}
	w.shown++
	PrintSighting(w.app.Term, s, w.flags.payload)
}

// published passes on the messages that users publish, until ctx ends. It drops those that
// JetStream delivers: replayed messages of inboxes arrive here, too, and would fill the queue of
// live messages.
func published(ctx context.Context, all <-chan *nats.Msg, live chan<- *nats.Msg) {
	for {
		select {
		case msg := <-all:
			if handedOut(msg) {
				continue
			}
			select {
			case live <- msg:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// handedOut reports whether JetStream delivers a stored message: it was shown
// when it was sent.
func handedOut(msg *nats.Msg) bool {
	return strings.HasPrefix(msg.Reply, "$JS.ACK.") || msg.Header.Get(natsjs.StreamHeader) != ""
}

// asked makes an envelope from plain text, which is shown like any other.
func asked(entity string, header nats.Header, data []byte) *envelope.Envelope {
	from := cmp.Or(header.Get(mesh.HeaderFrom), "human.unknown")
	payload := append(envelope.AppendString([]byte(`{"text":`), strings.ToValidUTF8(string(data), "\uFFFD")), '}')
	e := envelope.New(envelope.TypeTask, from, entity, intents.AgentAsk, payload)
	e.ID, e.Corr = "", ""
	return e
}

func (w *watcher) wants(s Sighting) bool {
	f, e := w.flags, s.Env
	switch {
	case f.kind != "" && string(e.Type) != f.kind,
		f.entity != "" && e.From != f.entity && e.To != f.entity,
		f.corr != "" && (len(f.corr) < 6 && e.Corr != f.corr || !strings.HasSuffix(e.Corr, f.corr)),
		f.intent != "" && !matchIntent(f.intent, e.Intent),
		e.Intent == intents.AgentHeartbeat && !f.heartbeats && f.intent != e.Intent,
		(e.Intent == intents.TaskOffer || e.Intent == intents.TaskGuard) && f.intent != e.Intent:
		return false
	}
	return true
}

// matchIntent matches an intent, or with a final "*" a prefix.
func matchIntent(pattern, intent string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(intent, prefix)
	}
	return pattern == intent
}

func (w *watcher) finished() bool {
	return w.flags.count > 0 && w.shown >= w.flags.count || w.app.Term.Broken()
}

// received are the limits for an envelope that a server has delivered: whatever its max_payload is.
func received(data []byte) envelope.Limits { return envelope.Limits{MaxBytes: len(data)} }

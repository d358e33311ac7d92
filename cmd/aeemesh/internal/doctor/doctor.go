package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/topology"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/inspect"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// check is one line of the output of "doctor".
type check struct {
	Name    string `json:"check"`
	Outcome string `json:"outcome"` // ok, warn or fail
	Found   string `json:"found"`
	Hint    string `json:"hint,omitempty"`
}

// doctor runs the checks and collects their results.
type doctor struct {
	app      *session.App
	conn     *nats.Conn
	subjects subject.Map
	entity   string
	monitor  string
	role     string
	named    bool // --entity was given
	probe    bool
	apply    bool
	strict   bool
	all      bool // print a line for each stream and agent
	replicas int
	ended    func() error // why the command has ended: a signal; nil is never
	failed   bool
	warned   bool
	inbox    bool      // the user can receive answers to requests
	info     *userInfo // of this user; nil if the server does not tell it
	remedy   string    // for missing streams, if "apply" would refuse to make them
	stream   string    // an existing stream, from which the server's clock is read

	clocked []string // agents whose clocks are right
	apart   time.Duration
	unasked []string // agents that this user may not send to
}

// Command returns "aeemesh doctor".
func Command(a *session.App) *cobra.Command {
	d := &doctor{app: a}
	c := session.Connects(&cobra.Command{
		Use:   "doctor",
		Short: "Check the connection, the server and what the mesh needs of it",
		Long: `Connects as a worker would, and checks: the connection and its round trip, the
server's version and max_payload, JetStream with the mesh's streams and whether
they are nearly full, what an acknowledgement of JetStream is worth (fsync),
NATS permissions in its --role for --entity (of a sender without --entity, for
the agents that answer), how far clocks are apart, and how the agents and their
queues are. Where it may, it stores a few records that expire within seconds, to
see that JetStream stores (--probe=false does not). It changes nothing else,
except with --apply, which does what "aeemesh apply" does.
A NATS user that may not ask the server for its permissions is tested by trials,
and each that the server refuses is a line in its log ("Publish Violation").
Agents are pinged. The ping is signed only where an agent requires it or --sign
names a key: agents that do not know the key refuse it and send an alert.
The exit status is 1 if a check fails, with --strict also if it warns.`,
		Example: `  aeemesh doctor
  aeemesh doctor --role sender --entity agent.reviewer --creds ada.creds
  aeemesh doctor --strict --json | jq 'select(.outcome != "ok")'
  aeemesh doctor --entity agent.reviewer --creds reviewer.creds
  aeemesh doctor --apply --replicas 3     # on a cluster of yours
  aeemesh doctor --monitor http://127.0.0.1:8222 --json | jq 'select(.outcome != "ok")'

  # with the nats CLI:
  nats server check connection
  nats account info`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if err := subject.ValidateEntity(d.entity); err != nil {
				return outcome.Usagef(cmd, "--entity: %w", err)
			}
			if err := outcome.OneOf(cmd, "role", d.role, roleWorker, roleSender, roleOperator); err != nil {
				return err
			}
			if d.replicas != 0 && (!d.apply || d.replicas != 1 && d.replicas != 3 && d.replicas != 5) {
				return outcome.Usagef(cmd, "--replicas %d: it is 1, 3 or 5, and goes with --apply", d.replicas)
			}
			if bad := a.CheckConnection(); len(bad) > 0 { // the others find it when they connect, and doctor reports that
				return &outcome.UsageError{Err: errors.Join(bad...), Cmd: cmd}
			}
			d.named = cmd.Flags().Changed("entity")
			var err error
			if d.subjects, err = a.Subjects(); err != nil {
				return err
			}
			d.ended = ctx.Err
			d.examine(ctx, cmd)
			if ctx.Err() != nil {
				return outcome.ErrInterrupted
			}
			if d.failed || d.strict && d.warned {
				return outcome.ErrQuiet
			}
			return nil
		}),
	})
	c.Flags().StringVar(&d.entity, "entity", "agent.example", "check the permissions for a worker of this `entity`")
	c.Flags().StringVar(&d.monitor, "monitor", "", "`URL` of the server's monitoring port, which tells its fsync class")
	c.Flags().BoolVar(&d.apply, "apply", false, "create the mesh's missing streams and buckets, and correct the others")
	c.Flags().IntVar(&d.replicas, "replicas", 0, "with --apply: replicas of each, 1, 3 or 5 (default 1 for new ones)")
	c.Flags().StringVar(&d.role, "role", roleWorker, "check this NATS user as a worker, a sender or an operator")
	c.Flags().BoolVar(&d.strict, "strict", false, "exit with status 1 where a check warns, too")
	c.Flags().BoolVar(&d.all, "all", false, "a line for each stream, bucket and agent, also where all is well")
	c.Flags().BoolVar(&d.probe, "probe", true, "store a few records that expire, to see that it works and how long it takes")
	a.AddSignFlags(c.Flags(), session.SignKey)
	return c
}

// tell prints the result of a check. A check that a signal has ended has no result.
func (d *doctor) tell(name, verdict, hint, format string, args ...any) {
	if d.ended != nil && d.ended() != nil {
		return
	}
	c := check{Name: name, Outcome: verdict, Found: term.Printable(fmt.Sprintf(format, args...)), Hint: strings.TrimSuffix(hint, outcome.DoctorTells)}
	d.failed, d.warned = d.failed || verdict == "fail", d.warned || verdict == "warn"
	t := d.app.Term
	if t.JSON {
		if err := t.Object(c); err != nil {
			t.Warn("%s", outcome.Text(err))
		}
		return
	}
	t.Line("%s %-12s %s", t.Mark(verdict), c.Name, c.Found)
	if c.Hint != "" {
		t.Line("     %-12s %s", "", t.Data.Paint(term.StyleFaint, c.Hint))
	}
}

func (d *doctor) examine(ctx context.Context, cmd *cobra.Command) {
	a := d.app
	conn, err := d.connect(ctx, cmd)
	if err != nil {
		d.tell("connection", "fail", outcome.Hint(err), "%s", outcome.Text(err))
		return
	}
	defer conn.Close()
	d.conn = conn
	d.connection()
	d.key()
	if d.role == roleSender && !d.named {
		d.sender(ctx)
		return
	}
	d.permissions(ctx)
	if d.role == roleSender {
		if d.inbox {
			d.clocks(ctx)
		}
		return
	}
	if !d.inbox {
		d.tell("inbox", "warn", "That is enough for live tasks, and not enough for the durable lane. Where \"aeemesh auth perms\" printed another prefix, give it to doctor and to the worker: --inbox-prefix.",
			"this user has no inbox for replies, so JetStream, agents and clocks cannot be asked")
		return
	}
	js, err := a.JetStream(conn)
	if err != nil {
		d.tell("jetstream", "fail", "", "%s", outcome.Text(err))
		return
	}
	if d.apply {
		d.applyStreams(ctx, js)
	}
	d.jetStream(ctx, js)
	d.clock(ctx, js)
	if found, ok := d.agents(ctx); ok {
		d.queues(ctx, js, found)
	}
}

// connect connects with the reply subjects that the user may have: a worker's are those of its entity.
// An operator who asks about a worker may not subscribe there, and gets those of the default sender.
func (d *doctor) connect(ctx context.Context, cmd *cobra.Command) (*nats.Conn, error) {
	status := session.QuietAboutPermissions(session.ConnectionStatus(d.app.Term, false)) // doctor checks permissions itself
	if d.role == roleWorker && d.named {
		conn, err := d.app.ConnectAs(ctx, cmd, d.entity, status)
		if err != nil {
			return nil, err
		}
		d.conn = conn
		if conn.Opts.InboxPrefix != perms.InboxPrefix(d.entity) || d.maySubscribe(conn.NewRespInbox()) {
			return conn, nil
		}
		conn.Close()
	}
	return d.app.Connect(ctx, cmd, status)
}

// oldestServer is the first version with all features that the mesh's streams
// use (TTLs of single messages, and scheduled messages).
const oldestServer = "2.12.0"

// obeysAnswers reports whether a server takes an answer of its own, whose reply
// subject a user has chosen, for a request to JetStream: 2.14.10 and 2.15.3 are
// the first that do not.
func obeysAnswers(version string) bool {
	return olderThan(version, "2.14.10") || !olderThan(version, "2.15.0") && olderThan(version, "2.15.3")
}

func (d *doctor) connection() {
	c := d.conn
	how, verdict, hint := "TLS", "ok", ""
	if _, err := c.TLSConnectionState(); err != nil {
		if how = "no TLS"; natsconn.InClear(c) {
			verdict, hint = "warn", "What agents say and store goes over the network as it is: give the server a certificate (tls { … })."
		}
	}
	d.tell("connection", verdict, hint, "%s, server %s, %s", c.ConnectedUrlRedacted(), c.ConnectedServerName(), how)
	if rtt, err := c.RTT(); err != nil {
		d.tell("round trip", "fail", "", "%s", outcome.Text(err))
	} else {
		d.tell("round trip", "ok", "", "%v", rtt.Round(time.Microsecond))
	}
	verdict, hint = "ok", ""
	v := c.ConnectedServerVersion()
	if olderThan(v, oldestServer) {
		verdict, hint = "warn", "The mesh's streams need nats-server "+oldestServer+" or later."
	} else if obeysAnswers(v) {
		verdict, hint = "warn", "There, each user with a permission for JetStream, a worker's too, can delete streams. Upgrade to 2.14.10, 2.15.3 or later."
	}
	d.tell("server", verdict, hint, "nats-server %s", v)
	if !c.HeadersSupported() {
		d.tell("headers", "fail", "Message headers must be on: traces, CBOR and error codes travel in them.", "the server takes no headers")
	}
	switch limit := c.MaxPayload(); {
	case limit < 64<<10:
		d.tell("max_payload", "warn", "Larger envelopes are refused.", "%d bytes", limit)
	case limit > 8<<20:
		d.tell("max_payload", "warn", "NATS advises against more than 8 MiB.", "%d bytes", limit)
	default:
		d.tell("max_payload", "ok", "", "%d bytes", limit)
	}
}

// olderThan compares versions a.b.c numerically.
func olderThan(version, than string) bool {
	var v, w [3]int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); n < 2 {
		return false
	}
	fmt.Sscanf(than, "%d.%d.%d", &w[0], &w[1], &w[2])
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

func (d *doctor) jetStream(ctx context.Context, js natsjs.JetStream) {
	ctx, cancel := context.WithTimeout(ctx, 2*d.app.Conn.Wait())
	defer cancel()
	report, err := inspect.JetStream(ctx, js, jetstream.Options{Map: d.subjects})
	if errors.Is(err, jetstream.ErrDenied) {
		hint := ""
		if d.role == roleWorker {
			hint = "A worker's user need not. With the permissions of \"aeemesh auth perms ENTITY --durable\" it takes durable tasks all the same; run doctor as an operator's user to see the streams."
		}
		d.tell("jetstream", d.lacks(), hint, "this user may not ask: %s", outcome.Text(err))
		return
	}
	if err != nil {
		d.tell("jetstream", "fail", outcome.Hint(err), "%s", outcome.Text(err))
		if changes, err := jetstream.Plan(ctx, js, jetstream.Options{Map: d.subjects}); err == nil {
			d.groups(changes)
		}
		return
	}
	if report.Off != "" {
		d.tell("jetstream", d.lacks(), "Live tasks work without it; replay, journals and shared keys do not, nor, if it has gone away, live tasks of agents whose workers share a limit (runtime.concurrency, or its default).", "off: %s", report.Off)
		return
	}
	d.tell("jetstream", "ok", "", "on, %s, %s stored", term.Counted(report.Account.Streams, "stream", "streams"), term.Size(report.Account.Store))
	d.elsewhere(ctx, js, report.Streams)
	d.streams(report.Streams)
	d.groups(report.Streams)
	d.room(ctx, js, report.Streams)
	d.storage(ctx, js, report.Account)
	for _, r := range report.Races {
		d.tell("race", "fail", "Take the subjects out of the stream, or make it no_ack: its acknowledgement is taken for the agent's answer.",
			"stream %s catches requests on %s", r.Stream, strings.Join(r.Subjects, ", "))
	}
	d.fsync(ctx, js, report.Account.Domain, inspect.AskFsync(ctx, js.Conn(), d.mayAskServer))
}

// applyStreams makes and repairs the streams, with --apply.
func (d *doctor) applyStreams(ctx context.Context, js natsjs.JetStream) {
	ctx, cancel := context.WithTimeout(ctx, topology.ApplyTimeout)
	defer cancel()
	report, err := jetstream.Apply(ctx, js, jetstream.Options{Map: d.subjects, Replicas: d.replicas, Done: func(c jetstream.Change) {
		if c.Action == jetstream.ActionCreate || c.Action == jetstream.ActionUpdate {
			d.app.Term.Say("%s", c)
		}
	}})
	if err != nil {
		d.tell("apply", "fail", outcome.Hint(topology.RoomHint(err)), "%s", outcome.Text(err))
		return
	}
	d.tell("apply", "ok", "", "%d of %d streams and buckets made or corrected", topology.Count(report).Todo(), len(report))
}

// fsync reports how safe an acknowledged message is, by the server's fsync
// settings and the time of an ack. The streams are in the domain.
func (d *doctor) fsync(ctx context.Context, js natsjs.JetStream, domain string, f inspect.Fsync) {
	if d.monitor != "" {
		asking, cancel := context.WithTimeout(ctx, min(monitorTimeout, d.app.Conn.Wait()))
		told, err := fsyncOf(asking, d.monitor)
		cancel()
		if err != nil {
			d.tell("fsync", "warn", "", "%s: %s", withoutUser(d.monitor), outcome.Text(err))
		} else {
			f = told
		}
	}
	if f.Class != inspect.FsyncUnknown && f.Domain != domain { // a leaf node's, and the streams are in the hub
		f = inspect.Fsync{Class: inspect.FsyncUnknown, Why: fmt.Sprintf("the server that says %s is of JetStream domain %q, and the streams are in %q", f.Class, f.Domain, domain)}
	}
	defer d.durable(ctx, js, f)
	ack := ""
	if seen := "$KV." + jetstream.BucketSeen + d.subjects.Suffix() + ".doctor"; d.probe && (!d.mayTry() || d.mayPublish(seen)) {
		probing, cancel := context.WithTimeout(ctx, d.app.Conn.Wait())
		took, err := inspect.ProbeAck(probing, js, d.subjects, 20)
		if err == nil {
			d.copies(probing, js)
		}
		cancel()
		switch {
		case err == nil:
			ack = fmt.Sprintf("; an acknowledgement took %v", took.Round(time.Microsecond))
		case errors.Is(err, jetstream.ErrDenied), errors.Is(err, jetstream.ErrNotFound), errors.Is(err, jetstream.ErrUnavailable):
			ack = "; no acknowledgement could be measured: " + outcome.Text(err) // the error was printed above, or this user may not measure
		case errors.Is(err, jetstream.ErrAccountFull):
			d.tell("store", "fail", "The line about storage says what holds it. Nothing durable works until something can be stored.", "nothing can be stored: %s", outcome.Text(err))
		case errors.Is(err, jetstream.ErrFull):
			d.tell("store", "fail", "\"aeemesh apply --limit aee_seen=max_bytes:…\" makes it larger.", "nothing can be stored in aee_seen: %s", outcome.Text(err))
		default:
			d.tell("store", "fail", "Is the server's disk full or missing? See its log. After a full disk make room, then restart the server. Nothing durable works until something can be stored.", "nothing can be stored: %s", outcome.Text(err))
		}
	}
	switch f.Class {
	case inspect.FsyncAlways:
		d.tell("fsync", "ok", "", "always: what is acknowledged is on the disk (%s)%s", f.Why, ack)
	case inspect.FsyncInterval:
		d.tell("fsync", "warn", "Where that matters: \"jetstream { sync_interval: always }\", or replicas on machines that do not fail together.",
			"every %v: the crash of a machine can lose what it acknowledged since (%s)%s", f.Interval, f.Why, ack)
	default:
		d.tell("fsync", "warn", "Assume nats-server's default, 2 minutes. --monitor URL asks the server's monitoring port.",
			"unknown: %s%s", f.Why, ack)
	}
}

// copies reports if the streams of several JetStream domains store the tasks of the mesh.
func (d *doctor) copies(ctx context.Context, js natsjs.JetStream) {
	if to, err := inspect.CopiesSubject(d.subjects); err != nil || !d.mayPublish(to) {
		return
	}
	if n, err := inspect.Copies(ctx, js.Conn(), d.subjects); err == nil && n > 1 {
		d.tell("copies", "fail", "Have the mesh's streams in one domain (\"aeemesh --js-domain\"), or another --prefix for each. docs/operations.md, \"Leaf nodes\".",
			"%d streams store each task, as in a hub and in a leaf node: it is done %d times", n, n)
	}
}

// elsewhere finds out whether "apply" would refuse to make the work queue, as it does if another
// JetStream domain stores the tasks of the mesh.
func (d *doctor) elsewhere(ctx context.Context, js natsjs.JetStream, changes []jetstream.Change) {
	to, err := inspect.CopiesSubject(d.subjects)
	for _, c := range changes {
		if c.Action == jetstream.ActionCreate && c.Name == jetstream.StreamWork+d.subjects.Suffix() && err == nil && d.mayTry() && d.mayPublish(to) && inspect.Elsewhere(ctx, js, d.subjects) {
			d.remedy = "Another JetStream domain stores the tasks of this mesh. " + outcome.Hint(topology.RoomHint(jetstream.ErrElsewhere))
		}
	}
}

// monitorTimeout bounds the request to the monitoring port, so that one that does not answer
// leaves time for the other checks of JetStream.
const monitorTimeout = 2 * time.Second

// withoutUser removes the user and the password from what may be a URL.
func withoutUser(text string) string {
	start, at := 0, strings.LastIndex(text, "@")
	if i := strings.Index(text, "://"); i >= 0 && i < at {
		start = i + len("://")
	}
	return text[:start] + text[max(at+1, start):]
}

// fsyncOf asks a monitoring port. Its errors do not contain the URL, which may have a password.
func fsyncOf(ctx context.Context, monitor string) (inspect.Fsync, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(monitor, "/")+"/jsz", nil)
	if err != nil {
		return inspect.Fsync{}, errors.New("it is no URL such as http://127.0.0.1:8222")
	}
	res, err := http.DefaultClient.Do(req)
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	if err != nil {
		return inspect.Fsync{}, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return inspect.Fsync{}, fmt.Errorf("HTTP status %s", res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err != nil {
		return inspect.Fsync{}, err
	}
	return inspect.ParseJSZ(body)
}

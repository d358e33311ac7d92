package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	reviewer "github.com/aeemesh/aeemesh/examples/code-reviewer"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

// demo is one run of the demonstration: a server, an agent, a client.
type demo struct {
	app  *app
	path string
	port int
	keep bool

	root   string // what is reviewed
	srv    *natsd.Server
	ring   *sign.Ring
	events chan sighting
	found  sync.Map // tool → what came of its last call
}

func (a *app) demoCommand() *cobra.Command {
	d := &demo{app: a}
	c := &cobra.Command{
		Use:   "demo",
		Short: "See it work: an agent that reviews Go code, on a server of its own",
		Long: `Starts a NATS server in this process, puts a code reviewer on subject
agent.code_reviewer, sends it a signed task, and shows what happens: the task,
the stream, the tools that the agent calls, what they find, and the events on
the bus. The agent's model is a script and needs no network; its tools really
inspect the files. Without --path they inspect a small package with planted
faults. Nothing is changed, and nothing is left behind.`,
		Example: `  aeemesh demo
  aeemesh demo --path .            # your own code
  aeemesh demo --json | jq .counts
  aeemesh demo --keep --port 4222  # and go on with the nats CLI:

  nats micro info agent-code_reviewer
  nats req aee.ask.agent.code_reviewer '{"path":"."}' --timeout 1m`,
		Args: arguments(),
		RunE: a.do(func(ctx context.Context, cmd *cobra.Command, _ []string) error { return d.run(ctx, cmd) }),
	}
	c.Flags().StringVar(&d.path, "path", "", "review the Go code in this `directory`")
	c.Flags().BoolVar(&d.keep, "keep", false, "keep the server and the agent running until Ctrl-C")
	c.Flags().IntVar(&d.port, "port", 0, "port of the server (default a free one)")
	return c
}

func (d *demo) run(ctx context.Context, cmd *cobra.Command) error {
	a := d.app
	if d.port < 0 || d.port > 65535 {
		return usagef(cmd, "a port is from 0 to 65535")
	}
	scratch, err := os.MkdirTemp("", "aeemesh-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if err := d.prepare(cmd, scratch); err != nil {
		return err
	}
	if err := d.startServer(ctx, scratch); err != nil {
		return err
	}
	defer d.srv.Close()
	tel, err := a.startTelemetry(ctx)
	if err != nil {
		return err
	}
	defer a.stopTelemetry(tel)

	served, err := d.agent()
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(ctx)
	defer stop()
	ended, err := d.serve(life, served, tel)
	if err != nil {
		return err
	}
	result := d.task(ctx, served.Entity, tel)
	if result == nil && d.keep {
		a.term.heading("The server and the agent go on. Ctrl-C ends them.")
		select {
		case <-ctx.Done():
		case err := <-ended:
			return err
		}
	}
	stop()
	return errors.Join(result, <-ended)
}

// prepare finds what is to be reviewed.
func (d *demo) prepare(cmd *cobra.Command, scratch string) error {
	if d.path == "" {
		d.root = filepath.Join(scratch, "sample")
		return reviewer.WriteSample(d.root)
	}
	info, err := os.Stat(d.path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return usagef(cmd, "--path %s: it must be a directory", d.path)
	}
	d.root, err = filepath.Abs(d.path)
	return err
}

func (d *demo) startServer(ctx context.Context, scratch string) error {
	port := natsd.RandomPort
	if d.port != 0 {
		port = d.port
	}
	var err error
	d.srv, err = natsd.New(natsd.Config{Port: port, JetStream: true, StoreDir: filepath.Join(scratch, "store"), Logger: d.app.log})
	if err != nil {
		return err
	}
	if err := d.srv.Start(ctx); err != nil {
		return err
	}
	d.app.term.heading("1. A NATS server, in this process")
	d.app.term.say("   %s, with JetStream", d.srv.ClientURL())
	return nil
}

// agent makes the reviewer of its document. Its tools leave word of what they
// found.
func (d *demo) agent() (*agents.Agent, error) {
	doc, err := aaif.Parse(reviewer.Document(), aaif.Options{Name: "agent.yaml", Kind: aaif.KindAgent})
	if err != nil {
		return nil, err
	}
	told := &tool.Registry{}
	for _, t := range reviewer.Tools(d.root).Tools() {
		name := t.Definition().Name
		err := told.Add(tool.Raw(t.Definition(), func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			result, err := t.Call(ctx, args)
			var report reviewer.Report
			if err == nil && json.Unmarshal(result, &report) == nil && report.Files > 0 {
				d.found.Store(name, fmt.Sprintf("%d findings in %d files", len(report.Findings), report.Files))
			}
			return result, err
		}))
		if err != nil {
			return nil, err
		}
	}
	return agents.New(doc, agents.Options{Tools: told, Logger: d.app.log})
}

func (d *demo) about(tool string) string {
	found, _ := d.found.Load(tool)
	s, _ := found.(string)
	return s
}

// serve puts the agent on the server. The channel gets the end of it.
func (d *demo) serve(ctx context.Context, served *agents.Agent, tel *telemetry) (<-chan error, error) {
	a := d.app
	conn, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	js, err := natsjs.New(conn)
	if err == nil {
		_, err = jetstream.Apply(ctx, js, jetstream.Options{Only: []string{jetstream.StreamBus, jetstream.BucketKeys}, Storage: natsjs.MemoryStorage,
			Limits: map[string]jetstream.Limits{jetstream.StreamBus: {MaxBytes: 32 << 20}, jetstream.BucketKeys: {MaxBytes: 1 << 20}}})
	}
	if err != nil {
		return nil, err
	}
	var key sign.Key
	d.ring = &sign.Ring{}
	if served.Signer, key, err = sign.NewKey("demo-agent", sign.Ed25519, served.Entity); err == nil {
		err = d.trust(ctx, js, key)
	}
	if err != nil {
		return nil, err
	}
	node, err := mesh.New(conn, mesh.Config{Verifier: sign.Verifier{Ring: d.ring}, Version: version(), Logger: a.log,
		TracerProvider: tel.tracer, MeterProvider: tel.meter, Drain: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	joined, err := d.listen(ctx)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		defer conn.Close()
		ended <- newDaemon(node, []*agents.Agent{served}).run(ctx)
	}()
	select {
	case <-joined:
	case err := <-ended:
		return nil, errors.Join(errors.New("the agent ended before its first task"), err)
	case <-ctx.Done():
		return nil, hinted(errors.New("interrupted"), "")
	}
	a.term.heading("2. An agent, from its AAIF document")
	a.term.say("   %s %s: %s", served.Entity, served.Version, served.Description)
	a.term.say("   it reviews %s", d.root)
	return ended, nil
}

// trust lets a key count here, and for others with --shared-keys.
func (d *demo) trust(ctx context.Context, js natsjs.JetStream, key sign.Key) error {
	if err := d.ring.Put(sign.Local, key); err != nil {
		return err
	}
	record, err := key.Record()
	if err != nil {
		return err
	}
	text, err := record.Marshal()
	if err != nil {
		return err
	}
	_, err = jetstream.NewKeys(js, subject.Map{}).Create(ctx, key.KID, text)
	return err
}

func (d *demo) connect(ctx context.Context) (*nats.Conn, error) {
	return mesh.Connect(ctx, mesh.Connection{URL: d.srv.ClientURL(), Name: "aeemesh demo", OnStatus: d.app.term.status(false)})
}

// listen collects what goes over the bus; the first channel is closed when the
// agent has joined.
func (d *demo) listen(ctx context.Context) (<-chan struct{}, error) {
	conn, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, conn.Close)
	d.events = make(chan sighting, 64)
	joined := make(chan struct{})
	var once sync.Once
	var m subject.Map
	_, err = conn.Subscribe(m.AllBus(), func(msg *nats.Msg) {
		e, err := envelope.Parse(msg.Data)
		if err != nil || e.Intent == intents.AgentHeartbeat {
			return
		}
		if e.Intent == intents.AgentJoined {
			once.Do(func() { close(joined) })
		}
		select {
		case d.events <- sighting{at: time.Now(), subject: msg.Subject, env: e}:
		default: // others use the mesh too by now
		}
	})
	if err == nil {
		err = conn.FlushTimeout(5 * time.Second)
	}
	return joined, err
}

// task sends the task and shows everything about it.
func (d *demo) task(ctx context.Context, entity string, tel *telemetry) error {
	t := d.app.term
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	from := d.app.defaultFrom()
	signer, key, err := sign.NewKey("demo-person", sign.Ed25519, from)
	if err == nil {
		err = d.ring.Put(sign.Local, key)
	}
	if err != nil {
		return err
	}
	node, err := mesh.New(conn, mesh.Config{Entity: from, Signer: signer, Verifier: sign.Verifier{Ring: d.ring, Mode: sign.Required},
		Version: version(), Logger: d.app.log, TracerProvider: tel.tracer})
	if err != nil {
		return err
	}
	task := envelope.New(envelope.TypeTask, from, entity, agents.RunIntent(entity), json.RawMessage(`{"path":"."}`))
	task.Requires = json.RawMessage(`{"stream":true,"timeout_ms":120000}`)
	if err := signer.Sign(task); err != nil {
		return err
	}
	raw, err := task.AppendJSON(nil)
	if err != nil {
		return err
	}
	t.heading("3. A signed task, on subject %s", entity)
	t.say("   %s", raw)
	t.heading("4. Its stream, and the tools that the agent calls")
	view := streamView{term: &terminal{data: t.words, words: t.words}, out: t.words, about: d.about}
	reply, err := node.Send(ctx, task, mesh.SendOptions{OnStream: view.show})
	view.end()
	if err != nil {
		return sendFailed(ctx, err)
	}
	if err := d.showReview(reply); err != nil {
		return err
	}
	d.showEvents(task.Corr)
	d.showCommands(entity)
	return nil
}

func (d *demo) showReview(reply *envelope.Envelope) error {
	t := d.app.term
	var review reviewer.Review
	if err := json.Unmarshal(reply.Payload, &review); err != nil {
		return fmt.Errorf("the result is no review: %w", err)
	}
	t.heading("5. The result, signed by %s", reply.From)
	if t.json {
		return t.object(review)
	}
	var rows [][]string
	for _, f := range review.Findings {
		rows = append(rows, []string{f.File + ":" + strconv.Itoa(f.Line) + ":" + strconv.Itoa(f.Column), string(f.Severity), f.Rule, f.Message})
	}
	t.table([]string{"where", "severity", "rule", "finding"}, rows)
	t.say("   %s", printable(review.Summary))
	return nil
}

// showEvents waits until the bus has told that the task is finished.
func (d *demo) showEvents(corr string) {
	t := d.app.term
	t.heading("6. What the bus heard")
	deadline := time.NewTimer(5 * time.Second)
	defer deadline.Stop()
	for {
		select {
		case s := <-d.events:
			t.say("   %s", t.words.sighting(s, false))
			if s.env.Corr == corr && strings.HasPrefix(s.env.Intent, "mesh.task.") && s.env.Intent != intents.TaskStarted {
				return
			}
		case <-deadline.C:
			return
		}
	}
}

func (d *demo) showCommands(entity string) {
	server, before := "-s "+d.srv.ClientURL()+" ", []string{}
	if !d.keep {
		server, before = "", []string{"aeemesh demo --keep --port 4222" + d.pathFlag()}
	}
	d.app.term.heading("7. The same with the nats CLI")
	d.app.term.steps("   unsigned, since nats has no keys of the mesh; this agent takes both", append(before,
		"nats "+server+"micro info "+subject.ServiceName(entity),
		"nats "+server+"sub 'bus.>'",
		"nats "+server+"req aee.ask."+entity+` '{"path":"."}' --timeout 1m`,
		"nats "+server+"req "+entity+` "$(aeemesh envelope new `+entity+` '{"path":"."}' --stream)" --wait-for-empty --reply-timeout 1m --no-templates`,
	)...)
	d.app.term.heading("8. And with aeemesh")
	at := "--nats " + d.srv.ClientURL() + " "
	if !d.keep {
		at = ""
	}
	d.app.term.steps("   the agent's key is in the mesh's bucket, for --shared-keys",
		"aeemesh "+at+"watch",
		"aeemesh "+at+"agents describe "+entity+" --shared-keys",
		"aeemesh "+at+"send "+entity+` '{"path":"."}' --stream --shared-keys`,
	)
}

func (d *demo) pathFlag() string {
	if d.path == "" {
		return ""
	}
	return " --path " + shellWord(d.path)
}

package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/scratch"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/natsd"
)

// demo is one run of the demonstration: a server in this process, the team's
// workers in others, and a client.
type demo struct {
	app  *session.App
	cmd  *cobra.Command
	path string
	port int
	keep bool

	root    string // what is reviewed
	scratch string // the team's documents, its keys and the server's store
	srv     *natsd.Server
	keys    *jetstream.Records // the mesh's
	team    []*demoWorker
	killed  int // the process that was killed; 0: none yet
}

const (
	demoLead   = "agent.review_lead"
	demoVictim = "agent.logic_reviewer" // whose worker is killed
)

// Command is "aeemesh demo".
func Command(a *session.App) *cobra.Command {
	d := &demo{app: a}
	c := &cobra.Command{
		Use:   "demo",
		Short: "See it work: a team reviews Go code, and one agent is killed",
		Long: `Starts a NATS server in this process, and a team of agents from their AAIF
documents, each in a process of its own: reviewers for security, style and
logic, an editor, and the lead, whose document says that the three work at once
and vote on how grave their findings are. The lead is sent a signed, durable
task. While it is worked on, one reviewer's process is killed (kill -9) and
started again: its task goes on where it was.

The agents' models are scripts and need no network; their tools really inspect
the files. Without --path they inspect a small package with planted faults.
Nothing is changed, and nothing is left behind.`,
		Example: `  aeemesh demo
  aeemesh demo --path .            # your own code
  aeemesh demo --json | jq .counts
  aeemesh demo --keep --port 4222  # and go on with the nats CLI:

  nats micro ls
  nats req aee.ask.agent.review_lead '{"path":"."}' --timeout 1m`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			d.cmd = cmd
			err := d.run(ctx)
			if err != nil && ctx.Err() != nil {
				return outcome.ErrInterrupted // each worker has an error of its own
			}
			return err
		}),
	}
	c.Flags().StringVar(&d.path, "path", "", "review the Go code in this `directory`")
	c.Flags().BoolVar(&d.keep, "keep", false, "keep the server and the agents running until Ctrl-C")
	c.Flags().IntVar(&d.port, "port", 0, "port of the server (default a free one)")
	c.AddCommand(demoToolCommand(a))
	return c
}

// Scratch makes a temporary directory: in the folder of temporary files, or in the working
// directory if there is no such folder, as in an image with one program. remove removes it.
func Scratch() (dir string, remove func() error, err error) {
	const name = "aeemesh-demo-"
	if dir, remove, err = scratch.Dir(os.TempDir(), name); err == nil {
		return dir, remove, nil
	}
	here, remove, failed := scratch.Dir(".", "."+name)
	if failed == nil {
		dir, failed = filepath.Abs(here)
	}
	if failed != nil {
		return "", nil, outcome.Hinted(err, "Set TMPDIR to a directory that can be written, or stand in one.")
	}
	return dir, remove, nil
}

func (d *demo) run(ctx context.Context) (err error) {
	if d.port < 0 || d.port > 65535 {
		return outcome.Usagef(d.cmd, "--port %d: a port is from 0 to 65535", d.port)
	}
	session.OutliveReaders() // "demo | head" must not leave the workers behind
	var remove func() error
	if d.scratch, remove, err = Scratch(); err != nil {
		return err
	}
	defer remove()
	if err := d.prepare(); err != nil {
		return err
	}
	if err := d.startServer(ctx); err != nil {
		return err
	}
	defer d.srv.Close()
	defer d.dismiss()
	if err := d.gather(ctx); err != nil {
		return err
	}
	s, err := d.client(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := d.review(ctx, s); err != nil {
		return err
	}
	d.showCommands()
	if d.keep {
		d.app.Term.Heading("The server and the agents go on. Ctrl-C ends them.")
		ctx, cancel := d.app.WhileRead(ctx)
		defer cancel()
		<-ctx.Done()
	}
	return nil
}

// prepare finds what is to be reviewed.
func (d *demo) prepare() error {
	if d.path == "" {
		d.root = filepath.Join(d.scratch, "sample")
		return review.WriteSample(d.root)
	}
	info, err := os.Stat(d.path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return outcome.Usagef(d.cmd, "--path %s: it must be a directory", d.path)
	}
	d.root, err = filepath.Abs(d.path)
	return err
}

func (d *demo) startServer(ctx context.Context) error {
	port := natsd.RandomPort
	if d.port != 0 {
		port = d.port
	}
	var err error
	d.srv, err = natsd.New(natsd.Config{Port: port, JetStream: true, StoreDir: filepath.Join(d.scratch, "store"), Logger: d.app.Log})
	if err != nil {
		return err
	}
	if err := d.srv.Start(ctx); err != nil {
		return err
	}
	d.app.Conn.Url = d.srv.ClientURL()
	d.app.Sign.Dir = filepath.Join(d.scratch, "keys")
	d.app.Term.Heading("1. A NATS server, in this process")
	d.app.Term.Say("   %s, with JetStream and the mesh's streams", d.srv.ClientURL())
	return d.apply(ctx)
}

// apply makes the mesh's streams, small ones.
func (d *demo) apply(ctx context.Context) error {
	conn, err := natsconn.Connect(ctx, natsconn.Config{URL: d.srv.ClientURL(), Name: "aeemesh demo"})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, conn.Close)
	js, err := jetstream.New(conn, "")
	if err != nil {
		return err
	}
	d.keys = jetstream.NewKeys(js, subject.Map{})
	limits := make(map[string]jetstream.Limits)
	for _, spec := range jetstream.Topology() {
		if spec.Config.MaxBytes > 0 {
			limits[spec.Name] = jetstream.Limits{MaxBytes: min(spec.Config.MaxBytes, 16<<20)}
		}
	}
	_, err = jetstream.Apply(ctx, js, jetstream.Options{Limits: limits})
	return err
}

// key makes a key for an entity, which all of the demo trust, and others with
// --shared-keys.
func (d *demo) key(ctx context.Context, entity string) error {
	signer, key, err := sign.NewKey("demo-"+entity, sign.Ed25519, entity)
	if err != nil {
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
	if _, err := d.keys.Create(ctx, key.KID, text); err != nil {
		return err
	}
	return sign.SaveKey(d.app.Sign.Dir, signer, key)
}

// client is who sends the task: a person, with a key.
func (d *demo) client(ctx context.Context) (*session.Session, error) {
	a := d.app
	a.Sign.Keys, a.Sign.Kid, a.Sign.Mode = nil, session.SignAuto, sign.Required.String()
	return a.Open(ctx, d.cmd, session.Options{Entity: a.DefaultFrom(), Signed: true, Config: a.LaneClient(d.cmd)})
}

// review sends the task and shows everything about it.
func (d *demo) review(ctx context.Context, s *session.Session) error {
	t := d.app.Term
	task := envelope.New(envelope.TypeTask, s.Node.Entity(), demoLead, agents.RunIntent(demoLead), json.RawMessage(`{"path":"."}`))
	task.Requires = json.RawMessage(`{"timeout_ms":120000}`)
	t.Heading("3. A signed, durable task for %s", demoLead)
	t.Say("   intent %s, corr %s, payload %s", task.Intent, task.Corr, task.Payload)
	t.Heading("4. What happens, as the bus tells it")
	watch, err := d.watch(ctx, s, task.Corr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	_, reply, err := s.Node.Perform(ctx, task, mesh.SubmitOptions{}, mesh.ResultOptions{})
	watch.end()
	if err != nil {
		return errors.Join(outcome.SendFailed(ctx, err), watch.err)
	}
	if watch.err != nil {
		return watch.err
	}
	if err := d.showReview(reply); err != nil {
		return err
	}
	return d.showRecovery(ctx, s, task.Corr, watch.victim)
}

// about is what the team has in common.
func (d *demo) about() string {
	return fmt.Sprintf("each signs with a key of its own; they read %s", d.root)
}

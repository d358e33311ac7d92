//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
)

// TestTranscripts plays the conversations in testdata/team: workers that are
// processes of their own, what they are sent, what comes back, and what the bus
// tells meanwhile. UPDATE_SCRIPTS=1 writes what expect and bus compare.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/team",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Values[stageKey{}] = &stage{workers: make(map[string]*process), serving: make(map[string]int), update: os.Getenv("UPDATE_SCRIPTS") != ""}
			return scriptSetup(env)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mesh": cmdMesh, "worker": cmdWorker, "program": cmdProgram, "crash": cmdCrash, "stop": cmdStop,
			"send": cmdSend, "expect": cmdExpect, "bus": cmdBus, "until": cmdUntil,
			"exits": cmdExits, "waitfile": cmdWaitFile, "retry": cmdRetry, "field": cmdField, "keep": cmdKeep,
		},
	})
}

// stage is what a transcript has at hand.
type stage struct {
	server   *natsd.Server
	node     *mesh.Node
	log      *busLog
	workers  map[string]*process
	serving  map[string]int // how many workers of each entity there are
	task     *envelope.Envelope
	answered chan struct{} // closed when the last task has been answered
	reply    *envelope.Envelope
	err      error
	update   bool
}

type stageKey struct{}

func onStage(ts *testscript.TestScript) *stage {
	s := ts.Value(stageKey{}).(*stage)
	if s.server == nil {
		ts.Fatalf("there is no mesh yet: say mesh first")
	}
	return s
}

// mesh [live]: starts a server, with the mesh's streams unless it is live, and
// listens to its bus.
func cmdMesh(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value(stageKey{}).(*stage)
	cfg := natsd.Config{Port: natsd.RandomPort}
	live := slices.Contains(args, "live")
	if !live {
		cfg.JetStream, cfg.StoreDir = true, scriptStore(ts, "store")
	}
	srv, err := natsd.New(cfg)
	ts.Check(err)
	ts.Check(srv.Start(context.Background()))
	ts.Defer(srv.Close)
	ts.Setenv("NATS_URL", srv.ClientURL())
	conn, err := nats.Connect("", srv.InProcess())
	ts.Check(err)
	ts.Defer(conn.Close)
	config := mesh.Config{Entity: "human.ada", Heartbeat: -1}
	if !live {
		ts.Check(applyTopology(srv))
		raw, err := natsjs.New(conn)
		ts.Check(err)
		s := jetstream.Open(jetstream.Gather(raw), subject.Map{})
		config.Durable = &mesh.Durable{Queue: s.Queue, Replies: s.Replies, Dead: s.Dead, States: s.States, Clock: s.Clock, Sweep: -1}
	}
	s.node, err = mesh.New(conn, config)
	ts.Check(err)
	s.log = &busLog{}
	for _, topic := range []string{"bus.mesh.task", "bus.mesh.run"} {
		_, err := conn.Subscribe(topic, s.log.note)
		ts.Check(err)
	}
	ts.Check(conn.Flush())
	s.server = srv
}

// process is a program that a transcript has started.
type process struct {
	cmd      *exec.Cmd
	log      string
	ended    chan struct{}
	entities []string
}

// worker NAME [-AGENT=N] ARG…: starts "aeemesh worker ARG…" as a process, a
// glob for each file that its folder has, and waits until its agents answer.
func cmdWorker(ts *testscript.TestScript, _ bool, args []string) {
	s := onStage(ts)
	if len(args) < 2 {
		ts.Fatalf("usage: worker NAME ARG...")
	}
	name, argv := args[0], []string{"worker", "--lease", "2s"}
	var entities []string
	as := ""
	for i, arg := range args[1:] {
		files := []string{arg}
		if strings.Contains(arg, "*.yaml") {
			found, err := filepath.Glob(ts.MkAbs(arg))
			ts.Check(err)
			files = found
		}
		for _, f := range files {
			if strings.HasSuffix(f, ".yaml") || strings.HasSuffix(f, ".json") {
				doc, err := aaif.Parse([]byte(ts.ReadFile(f)), aaif.Options{Name: f, Kind: aaif.KindAgent})
				ts.Check(err)
				entity, err := aaif.EntityName(doc.Definition().Agent.Name)
				ts.Check(err)
				entities = append(entities, entity)
			}
		}
		if arg == "--as" {
			as = args[i+2]
		}
		argv = append(argv, files...)
	}
	if as != "" {
		entities = []string{as}
	}
	s.start(ts, name, entities, s.discovered, commandPath(ts, "aeemesh"), argv...)
}

// program NAME ENTITY COMMAND ARG…: starts any program, and waits until the
// agent answers that it is.
func cmdProgram(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: program NAME ENTITY COMMAND ARG...")
	}
	s := onStage(ts)
	s.start(ts, args[0], []string{args[1]}, s.pinged, commandPath(ts, args[2]), args[3:]...)
}

// commandPath is the path of a command of the script's.
func commandPath(ts *testscript.TestScript, name string) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path := filepath.Join(dir, name); !strings.Contains(name, "/") {
			if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
				return path
			}
		}
	}
	ts.Fatalf("there is no program %s", name)
	return ""
}

// discovered reports whether all workers of an entity are there, as NATS micro
// services.
func (s *stage) discovered(entity string) error {
	found, err := s.node.Discover(context.Background(), entity, 200*time.Millisecond)
	if err == nil && len(found) < s.serving[entity] {
		err = fmt.Errorf("%d workers answer", len(found))
	}
	return err
}

// pinged reports whether an entity answers tasks, as any agent does.
func (s *stage) pinged(entity string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := s.node.Send(ctx, envelope.New(envelope.TypeTask, "human.ada", entity, intents.StatusPing, json.RawMessage(`{}`)), mesh.SendOptions{})
	return err
}

// start runs a program, and waits until its agents are there.
func (s *stage) start(ts *testscript.TestScript, name string, entities []string, there func(string) error, path string, argv ...string) {
	if _, runs := s.workers[name]; runs {
		ts.Fatalf("%s runs already", name)
	}
	p := &process{cmd: exec.Command(path, argv...), log: ts.MkAbs(name + ".log"), ended: make(chan struct{}), entities: entities}
	log, err := os.Create(p.log)
	ts.Check(err)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = ts.MkAbs("."), log, log
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "PATH", "NATS_URL", "USER", "TMPDIR", "ROOT"} {
		p.cmd.Env = append(p.cmd.Env, name+"="+ts.Getenv(name))
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ts.Check(p.cmd.Start())
	go func() { _ = p.cmd.Wait(); log.Close(); close(p.ended) }() // how it ended is for the log
	s.workers[name] = p
	ts.Defer(func() { p.kill(); <-p.ended })
	for _, entity := range entities {
		s.serving[entity]++
		s.wait(ts, fmt.Sprintf("%s to answer for %s", name, entity), func() error {
			select {
			case <-p.ended:
				ts.Fatalf("%s has ended:\n%s", name, p.tail())
			default:
			}
			return there(entity)
		})
	}
}

// kill ends a process and what it has started, as rudely as can be.
func (p *process) kill() { syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// crash NAME: kill -9.
func cmdCrash(ts *testscript.TestScript, _ bool, args []string) {
	s := onStage(ts)
	p := s.take(ts, args)
	p.kill()
	<-p.ended
}

// stop NAME: SIGTERM, and waits until it has drained.
func cmdStop(ts *testscript.TestScript, _ bool, args []string) {
	s := onStage(ts)
	p := s.take(ts, args)
	ts.Check(p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.ended:
	case <-time.After(patience):
		ts.Fatalf("it does not end:\n%s", p.tail())
	}
}

func (s *stage) take(ts *testscript.TestScript, args []string) *process {
	if len(args) != 1 || s.workers[args[0]] == nil {
		ts.Fatalf("which worker?")
	}
	p := s.workers[args[0]]
	delete(s.workers, args[0])
	for _, entity := range p.entities {
		s.serving[entity]--
	}
	return p
}

// wait polls, and tells the workers' own words if it gives up.
func (s *stage) wait(ts *testscript.TestScript, what string, f func() error) {
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.giveUp(ts, "waiting for %s: %v", what, err)
		}
		<-tick.C
	}
}

func (s *stage) giveUp(ts *testscript.TestScript, format string, args ...any) {
	for name, p := range s.workers {
		ts.Logf("%s:\n%s", name, p.tail())
	}
	if s.log != nil {
		ts.Logf("bus:\n%s", s.log.raw())
	}
	ts.Fatalf(format, args...)
}

// send [live] ENTITY PAYLOAD [INTENT]: sends a task, durable unless it is live,
// and does not wait.
func cmdSend(ts *testscript.TestScript, _ bool, args []string) {
	s := onStage(ts)
	live := len(args) > 0 && args[0] == "live"
	if live {
		args = args[1:]
	}
	if len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: send [live] ENTITY PAYLOAD [INTENT]")
	}
	if s.answered != nil {
		select {
		case <-s.answered:
		default:
			ts.Fatalf("the task before has not been answered: expect it first")
		}
	}
	intent := args[0] + ".run"
	if len(args) == 3 {
		intent = args[2]
	}
	task := envelope.New(envelope.TypeTask, "human.ada", args[0], intent, json.RawMessage(args[1]))
	s.task, s.answered = task, make(chan struct{})
	done := s.answered
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	ts.Defer(cancel)
	if !live {
		_, err := s.node.Submit(ctx, task, mesh.SubmitOptions{})
		ts.Check(err)
	}
	go func() {
		defer close(done)
		if live {
			s.reply, s.err = s.node.Send(ctx, task, mesh.SendOptions{})
		} else {
			s.reply, s.err = s.node.Result(ctx, task.To, task.ID, mesh.ResultOptions{Follow: true})
		}
	}()
}

// expect FILE: the task that was sent last is answered so.
func cmdExpect(ts *testscript.TestScript, _ bool, args []string) {
	s := onStage(ts)
	if len(args) != 1 || s.answered == nil {
		ts.Fatalf("usage: expect FILE, after send")
	}
	select {
	case <-s.answered:
	case <-time.After(patience):
		s.giveUp(ts, "no answer")
	}
	reply := s.reply
	if reply == nil {
		s.giveUp(ts, "no answer: %v", s.err)
	}
	var body bytes.Buffer
	if err := json.Indent(&body, []byte(settled(string(reply.Payload))), "", "  "); err != nil {
		ts.Fatalf("the payload is no JSON: %v", err)
	}
	s.compare(ts, args[0], fmt.Sprintf("%s from %s\n%s\n", reply.Type, reply.From, body.String()))
}

// bus FILE: what the bus told of the task that was sent last, and of all tasks
// that came of it.
func cmdBus(ts *testscript.TestScript, _ bool, args []string) {
	s := onStage(ts)
	if len(args) != 1 || s.task == nil {
		ts.Fatalf("usage: bus FILE, after send")
	}
	if s.update { // what else may come
		last, same := "", 0
		s.wait(ts, "the bus to be quiet", func() error {
			now := s.log.tree(s.task)
			if same++; now != last {
				last, same = now, 0
			}
			if same < 50 {
				return errors.New("it is not")
			}
			return nil
		})
		s.compare(ts, args[0], last)
		return
	}
	want := ts.ReadFile(args[0])
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for s.log.tree(s.task) != want {
		if time.Now().After(deadline) {
			s.compare(ts, args[0], s.log.tree(s.task))
			return
		}
		<-tick.C
	}
}

// until REGEXP: waits until what the bus told of the task that was sent last has
// such a line.
func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	s := onStage(ts)
	if len(args) != 1 || s.task == nil {
		ts.Fatalf("usage: until REGEXP, after send")
	}
	want := regexp.MustCompile("(?m)" + args[0])
	s.wait(ts, args[0], func() error {
		if tree := s.log.tree(s.task); !want.MatchString(tree) {
			return fmt.Errorf("the bus tells:\n%s", tree)
		}
		return nil
	})
}

// compare holds a text against a file of the script, or writes it there.
func (s *stage) compare(ts *testscript.TestScript, file, got string) {
	want := ts.ReadFile(file)
	if got == want {
		return
	}
	if s.update {
		s.rewrite(ts, file, got)
		return
	}
	s.giveUp(ts, "%s differs; look, and run with UPDATE_SCRIPTS=1\ngot:\n%s\nwant:\n%s", file, got, want)
}

// rewrite puts a text into the script, where the file's own was.
func (s *stage) rewrite(ts *testscript.TestScript, file, text string) {
	name := filepath.Join("testdata", "team", ts.Name()+".txtar")
	archive, err := txtar.ParseFile(name)
	ts.Check(err)
	for i := range archive.Files {
		if archive.Files[i].Name == file {
			archive.Files[i].Data = []byte(text)
		}
	}
	ts.Check(os.WriteFile(name, txtar.Format(archive), 0o644))
}

var (
	volatileIDs   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-7][0-9A-HJKMNP-TV-Z]{25}`)
	volatileTimes = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	volatileMS    = regexp.MustCompile(`"(ms|duration_ms|elapsed_ms|backoff_ms|input_tokens|output_tokens)":\s*[0-9.]+`)
)

// settled is a text without what differs from run to run: ids in the order in
// which they are there, times, durations, tokens.
func settled(text string) string {
	seen := make(map[string]string)
	text = volatileIDs.ReplaceAllStringFunc(text, func(id string) string {
		if seen[id] == "" {
			seen[id] = fmt.Sprintf("<id %d>", len(seen)+1)
		}
		return seen[id]
	})
	text = volatileTimes.ReplaceAllString(text, "<time>")
	return volatileMS.ReplaceAllString(text, `"$1":0`)
}

package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
)

// demoWorker is one agent of the demo, in a process of its own.
type demoWorker struct {
	file   string // its document
	entity string
	about  string
	tools  []string // names of its function tools
	cmd    *exec.Cmd
	ended  chan struct{}
	words  strings.Builder // what it said on stderr; complete once it has ended
}

// gather starts the team's workers.
func (d *demo) gather(ctx context.Context) error {
	t := d.app.Term
	t.Heading("2. A team of agents, each from its AAIF document and in a process of its own")
	dir := filepath.Join(d.scratch, "team")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	keys := map[string]bool{}
	for name, text := range review.Team() {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
		doc, err := aaif.Parse(text, aaif.Options{Name: name, Kind: aaif.KindAgent})
		if err != nil {
			return err
		}
		agent := doc.Definition().Agent
		entity, err := aaif.EntityName(agent.Name)
		if err != nil {
			return err
		}
		keys[entity] = true
		w := &demoWorker{file: file, entity: entity, about: agent.Description}
		for _, t := range agent.Tools {
			w.tools = append(w.tools, t.Name)
		}
		if name == review.TeamLead {
			d.team = append([]*demoWorker{w}, d.team...)
		} else {
			d.team = append(d.team, w)
		}
	}
	keys[d.app.DefaultFrom()] = true
	for entity := range keys {
		if err := d.key(ctx, entity); err != nil {
			return err
		}
	}
	started := make(chan error)
	for _, w := range d.team {
		go func() { started <- d.start(ctx, w) }()
	}
	var bad []error
	for range d.team {
		bad = append(bad, <-started)
	}
	if err := errors.Join(bad...); err != nil {
		return err
	}
	var rows [][]string
	for _, w := range d.team {
		rows = append(rows, []string{w.entity, strconv.Itoa(w.cmd.Process.Pid), w.about})
	}
	words := &term.Terminal{Data: t.Words, Words: t.Words}
	words.Table([]string{"agent", "process", "about"}, rows)
	t.Say("   %s", d.about())
	return nil
}

// demoPatience is how long a worker may take to serve.
const demoPatience = 20 * time.Second

// demoEnv is the environment of the demo's workers: this program's own, without
// what would lead them to another mesh.
func demoEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "NATS_") || strings.HasPrefix(kv, "AEEMESH_")
	})
}

// start starts a worker and waits until it serves.
func (d *demo) start(ctx context.Context, w *demoWorker) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"worker", w.file, "--child", "--json", "--nats", d.srv.ClientURL(), "--keys", d.app.Sign.Dir,
		"--durable", "on", "--lease", "1s", "--drain", "1s", "--lost-call", "*=repeat"} // its tools only read
	for _, name := range w.tools {
		args = append(args, "--tool", name+"="+plain.ShellWord(self)+" demo tool "+plain.ShellWord(name)+" "+plain.ShellWord(d.root))
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(demoEnv(), "AEEMESH_LOG_LEVEL=error")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stderr = &w.words
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if _, err := cmd.StdinPipe(); err != nil { // the kernel closes it with this process: see worker --child
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w.cmd, w.ended = cmd, make(chan struct{})
	serving := make(chan struct{})
	go func() {
		defer close(w.ended)
		lines := bufio.NewScanner(out)
		if lines.Scan() {
			var line struct{ Entity string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Entity == w.entity {
				close(serving)
			}
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // a worker that is killed has a status too
	}()
	select {
	case <-serving:
		return nil
	case <-w.ended:
		return fmt.Errorf("the worker of %s did not start: %s", w.entity, strings.TrimSpace(w.words.String()))
	case <-time.After(demoPatience):
		return fmt.Errorf("the worker of %s does not serve after %v", w.entity, demoPatience)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kill ends a worker as a crash would, and starts another in its place.
func (d *demo) kill(ctx context.Context, entity string) error {
	for i, w := range d.team {
		if w.entity != entity {
			continue
		}
		d.killed = w.cmd.Process.Pid
		if err := w.cmd.Process.Kill(); err != nil {
			return err
		}
		<-w.ended
		d.app.Term.Say("   %s", d.app.Term.Words.Paint(term.StyleError, fmt.Sprintf("kill -9 %d: the only worker of %s is killed, in the middle of its task", d.killed, entity)))
		next := &demoWorker{file: w.file, entity: w.entity, about: w.about, tools: w.tools}
		if err := d.start(ctx, next); err != nil {
			return err
		}
		d.team[i] = next
		d.app.Term.Say("   another one is started, as a supervisor would: process %d", next.cmd.Process.Pid)
	}
	return nil
}

// dismiss ends all workers.
func (d *demo) dismiss() {
	for _, w := range d.team {
		if w.cmd != nil && w.cmd.Process != nil {
			_ = w.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		}
	}
	for _, w := range d.team {
		if w.cmd == nil || w.ended == nil {
			continue
		}
		select {
		case <-w.ended:
		case <-time.After(5 * time.Second):
			_ = w.cmd.Process.Kill()
			<-w.ended
		}
	}
}

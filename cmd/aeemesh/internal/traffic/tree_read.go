package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/runs"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/tree"
)

// topics returns the subjects of the events that trees are made of.
func (r *treeReader) topics() ([]string, error) {
	var out []string
	for _, topic := range []string{mesh.BusTask, mesh.BusRun} {
		to, err := r.subjects.Bus(topic)
		if err != nil {
			return nil, err
		}
		out = append(out, to)
	}
	return out, nil
}

// stored returns why no events are stored; nil if they are.
func (r *treeReader) stored(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.app.Conn.Wait())
	defer cancel()
	plan, err := jetstream.Plan(ctx, r.js, jetstream.Options{Map: r.subjects, Only: []string{jetstream.StreamBus}})
	if err != nil {
		return err
	}
	if plan[0].Action == jetstream.ActionCreate {
		return noStream(plan[0].Name)
	}
	return nil
}

// noStream is the error of a stream that does not exist.
type noStream string

func (s noStream) Error() string        { return "there is no stream " + string(s) }
func (s noStream) Is(target error) bool { return target == jetstream.ErrNotFound }

// since returns the earliest time of the tree's events.
func (r *treeReader) since() time.Time {
	if d := r.flags.since; d > 0 {
		return time.Now().Add(-d)
	}
	return notBefore(r.wanted, r.began)
}

// locate reads from the run's record when its tree began. It is for names that contain no time:
// the id of a run or its beginning, or a task's id that is no ULID. If it finds no time, all
// events are read.
func (r *treeReader) locate(ctx context.Context) {
	if _, ok := runs.Since(r.wanted); ok || r.flags.since > 0 {
		return
	}
	if ring, err := r.app.Keyring(r.cmd); err == nil {
		r.began = beginning(ctx, runs.NewStore(r.js, r.subjects, ring), r.wanted)
	}
}

// beginning returns the time from which the events of the run with this name are read; zero if the
// store does not know it.
func beginning(ctx context.Context, store *runs.Store, name string) (began time.Time) {
	ids, err := store.Known(ctx, name)
	if err != nil {
		return time.Time{}
	}
	for _, id := range ids {
		rec, err := store.Get(ctx, id)
		if err != nil {
			return time.Time{}
		}
		c, err := store.Codec.DecodeRecord(rec)
		if err != nil {
			return time.Time{}
		}
		task, err := c.ReadTask()
		if err != nil {
			return time.Time{}
		}
		at := notBefore(task.Corr, time.Time{})
		if at.IsZero() {
			return at
		}
		if began.IsZero() || at.Before(began) {
			began = at
		}
	}
	return began
}

// notBefore returns the time from which the messages of a task or corr are read, not earlier than
// since. Ids of this mesh contain their time; for other ids, and ids of the future, it is since.
func notBefore(id string, since time.Time) time.Time {
	if at, ok := runs.Since(id); ok && at.After(since) {
		return at
	}
	return since
}

// replay reads the stored events, up to the one at which the tree is over.
func (r *treeReader) replay(ctx context.Context) error {
	subjects, err := r.topics()
	if err != nil {
		return err
	}
	told := time.Now()
	for msg, err := range jetstream.Replay(ctx, r.js, jetstream.ReplayOptions{Map: r.subjects, Subjects: subjects, Since: r.since()}) {
		if err != nil {
			return err
		}
		if r.over(msg.Time) {
			return nil
		}
		r.take(msg.Time, msg.Data)
		if r.seen%4096 == 0 && time.Since(told) > 2*time.Second {
			told = time.Now()
			tasks := 0
			if r.builder != nil {
				tasks = r.builder.Len()
			}
			r.app.Term.Progress("%d events read, up to %s; %d tasks", r.seen, msg.Time.Local().Format("2006-01-02 15:04:05"), tasks)
		}
	}
	return ctx.Err()
}

// treeSilence is how long events are looked for after all tasks of a tree are done: an
// event may be stored late.
const treeSilence = 5 * time.Minute

// over reports whether all tasks of the tree were done long before a time. One that has
// failed may be tried again at any time, and a corr that contains no time is one that a person
// has chosen: another task may have it at any time. The tree is looked at once for each event of it.
func (r *treeReader) over(at time.Time) bool {
	if _, made := runs.Since(r.corr); r.root == "" && !made {
		return false
	}
	if r.builder == nil || r.latest.IsZero() || at.Sub(r.latest) < treeSilence {
		return false
	}
	if !r.latest.Equal(r.judged) {
		r.judged = r.latest
		r.ended = !slices.ContainsFunc(r.builder.Tree(at).Nodes, func(n *tree.Node) bool { return n.State != tree.Done && n.State != tree.HandedOff })
	}
	return r.ended
}

// listen returns events as they arrive, until ctx ends: from the stream,
// beginning with those that it holds, or, without a stream, from now on. The
// channel is closed at the end.
func (r *treeReader) listen(ctx context.Context) (<-chan busMessage, error) {
	subjects, err := r.topics()
	if err != nil {
		return nil, err
	}
	out := make(chan busMessage, 256)
	missing := r.stored(ctx)
	if missing == nil {
		r.locate(ctx)
		go func() {
			defer close(out)
			for msg, err := range jetstream.Replay(ctx, r.js, jetstream.ReplayOptions{Map: r.subjects, Subjects: subjects, Since: r.since(), Follow: true}) {
				select {
				case out <- busMessage{msg.Time, msg.Data, err}:
				case <-ctx.Done():
					return
				}
			}
		}()
		return out, nil
	}
	if errors.Is(missing, jetstream.ErrUnavailable) {
		r.app.Term.Note("there is no JetStream: only what comes from now on can be shown")
	} else {
		r.app.Term.Note("%s: only what comes from now on can be shown", outcome.Text(missing))
	}
	live := make(chan *nats.Msg, watchQueue)
	for _, s := range subjects {
		if _, err := r.conn.ChanSubscribe(s, live); err != nil {
			return nil, fmt.Errorf("listen to %s: %w", s, err)
		}
	}
	if err := r.conn.FlushTimeout(r.app.Conn.Wait()); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	go func() {
		defer close(out)
		for {
			select {
			case msg := <-live:
				select {
				case out <- busMessage{time.Now(), msg.Data, nil}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// busMessage is a message of the bus, or the error that ended them.
type busMessage struct {
	at   time.Time
	data []byte
	err  error
}

// take adds a message of the bus, and reports whether it changes the tree.
func (r *treeReader) take(at time.Time, data []byte) (*envelope.Envelope, bool) {
	r.seen++
	if !mentions(data, r.quick) {
		return nil, false
	}
	e, err := envelope.ParseLimits(data, received(data))
	if err != nil {
		r.app.Log.Debug("no envelope", "err", err)
		return nil, false
	}
	root, ours := r.root, e.Corr == r.corr
	if r.builder == nil {
		root, ours = r.recognize(e)
	}
	if !ours || r.forged(e, at) {
		return nil, false
	}
	if r.builder == nil {
		r.found(e.Corr, root)
	}
	changed := r.builder.Event(at, e)
	if changed {
		r.latest = at
	}
	return e, changed
}

// forged reports whether an envelope of the tree has a wrong signature: the tree has nothing of it. An
// envelope whose key was revoked or has expired since stays: its task would vanish.
func (r *treeReader) forged(e *envelope.Envelope, at time.Time) bool {
	v := Vouch(r.ring, e, at)
	forged := v.wrong() && v.err != envelope.CodeKeyInvalid
	if forged {
		level := slog.LevelDebug
		if !r.warned { // others may send any number of them
			r.warned, level = true, slog.LevelWarn
		}
		r.app.Log.Log(context.Background(), level, "an envelope with a wrong signature is passed over", "id", e.ID, "from", e.From, "intent", e.Intent, "kid", v.kid, "code", string(v.err))
	}
	return forged
}

// mentions reports whether JSON may contain a text in the spelling of inJSON. JSON with escapes
// may contain it in another spelling, so mentions returns true for it.
func mentions(data, text []byte) bool {
	return bytes.Contains(data, text) || bytes.IndexByte(data, '\\') >= 0
}

// recognize reports whether an event belongs to the wanted tree, which is the
// first that is found, and the task from which it is drawn; "": from all.
func (r *treeReader) recognize(e *envelope.Envelope) (root string, ours bool) {
	var p struct {
		Task  string `json:"task"`
		Child string `json:"child"`
		Run   string `json:"run"`
	}
	if json.Unmarshal(e.Payload, &p) != nil || p.Task == "" {
		return "", false
	}
	switch r.wanted {
	case e.Corr:
		return "", true
	case p.Task, p.Run:
		return p.Task, true
	case p.Child:
		return p.Child, true
	}
	return p.Task, len(r.wanted) >= 6 && strings.HasPrefix(p.Run, r.wanted)
}

// found sets which tree it is.
func (r *treeReader) found(corr, root string) {
	r.corr, r.root, r.quick, r.builder = corr, root, inJSON(corr), tree.New(corr)
}

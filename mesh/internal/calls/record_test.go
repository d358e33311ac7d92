package calls

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh/internal/bounds"
	"github.com/aeemesh/aeemesh/state"
)

// fakeRun is a run as [RunPort]. Each write waits until the test lets it go on.
type fakeRun struct {
	mu      sync.Mutex
	c       *state.Checkpoint
	writing chan struct{} // a value for each write that has begun
	proceed chan error    // what each write comes to
	record  *Record
}

func newFakeRun() (*fakeRun, *Run) {
	f := &fakeRun{c: state.New("agent.lead", "task-0001", ""), writing: make(chan struct{}), proceed: make(chan error), record: &Record{}}
	return f, &Run{Port: f, ID: f.c.Doc.RunID, Record: f.record}
}

func (f *fakeRun) Checkpoint() *state.Checkpoint {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.c
}

func (f *fakeRun) Change(change func(*state.Checkpoint) error) error {
	f.writing <- struct{}{}
	if err := <-f.proceed; err != nil {
		return err
	}
	next := f.Checkpoint().Clone()
	if err := change(next); err != nil {
		return err
	}
	f.record.RemoveEnded(next)
	f.mu.Lock()
	f.c = next
	f.mu.Unlock()
	f.record.ForgetRemoved(next)
	return nil
}

func (f *fakeRun) OnStop(func()) func() { return func() {} }
func (f *fakeRun) Go(work func())       { go work() }

func (f *fakeRun) keys() (keys []string) {
	for _, c := range f.Checkpoint().Mesh.Calls {
		keys = append(keys, c.Key)
	}
	slices.Sort(keys)
	return keys
}

// waiting returns how many calls the next write adds.
func (b *Record) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		return 0
	}
	return len(b.next.calls)
}

func TestCallsThatBeginDuringAWriteShareTheNextOne(t *testing.T) {
	t.Parallel()
	f, r := newFakeRun()
	added := make(chan error, 3)
	add := func(key string) {
		go func() { added <- r.addCall(t.Context(), state.Call{Key: key, ID: "id-" + key, To: "agent.helper"}) }()
	}
	add("a")
	<-f.writing
	add("b")
	add("c")
	for deadline := time.Now().Add(time.Minute); f.record.waiting() < 2; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the calls do not wait for the next write")
		}
	}
	f.proceed <- nil
	<-f.writing
	f.proceed <- nil
	for range 3 {
		if err := <-added; err != nil {
			t.Error(err)
		}
	}
	if got := f.keys(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("the checkpoint names %v", got)
	}
	if step := f.Checkpoint().Mesh.Step; step.Kind != state.StepCall || step.Name != "" {
		t.Errorf("the last step is %+v; it is one of two calls", step)
	}
}

func TestAnEndedCallLeavesTheCheckpointWithTheNextWrite(t *testing.T) {
	t.Parallel()
	f, r := newFakeRun()
	go func() {
		for range f.writing {
			f.proceed <- nil
		}
	}()
	for _, key := range []string{"a", "b"} {
		if err := r.addCall(t.Context(), state.Call{Key: key, ID: "id-" + key}); err != nil {
			t.Fatal(err)
		}
	}
	f.record.ended("id-a")
	if err := r.addCall(t.Context(), state.Call{Key: "c", ID: "id-c"}); err != nil {
		t.Fatal(err)
	}
	if got := f.keys(); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("the checkpoint names %v", got)
	}
	if len(f.record.over) != 0 {
		t.Errorf("ended calls that the checkpoint does not name are remembered: %v", f.record.over)
	}
}

// A task ends while its call waits for the write that records it. If the record has named the call
// before, the call was sent, by an earlier owner of the run or before a pause, and the end of the
// run must cancel it. A call that was recorded for the first time is not sent.
func TestACallThatWasSentStaysInTheRecordIfItsNextWriteFails(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"the task is stopped": false, "the write fails": true} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, sent before: %v", name, known), func(t *testing.T) {
				t.Parallel()
				f, r := newFakeRun()
				if known {
					f.c.Mesh.Calls = []state.Call{{Key: "a", ID: "id-a", To: "agent.helper", Sent: []string{"the first payload"}}}
				}
				o := &outgoing{Task: &Task{Agent: &Agent{Node: &Node{Now: time.Now}}, Run: r, Tree: &bounds.Position{}}, c: &Call{Key: "a", To: "agent.helper"}, a: &Answer{TaskID: "id-a", Durable: true}, digests: []string{"another payload"}}
				ctx, cancel := context.WithCancel(t.Context())
				failed := make(chan error, 1)
				go func() { failed <- o.begin(ctx, false) }()
				<-f.writing
				if lost {
					f.proceed <- errors.New("the store does not answer")
				}
				cancel()
				if err := <-failed; err == nil {
					t.Error("the call is sent")
				}
				if !lost {
					f.proceed <- nil
					for deadline := time.Now().Add(time.Minute); r.Record.busy(); runtime.Gosched() {
						if time.Now().After(deadline) {
							t.Fatal("the write does not end")
						}
					}
				}
				end := f.Checkpoint().Clone() // what the end of the run cancels
				r.Record.RemoveEnded(end)
				if named := len(end.Mesh.Calls) == 1; named != known {
					t.Errorf("the record names %+v", end.Mesh.Calls)
				}
			})
		}
	}
}

// busy reports whether a write is under way.
func (b *Record) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.writing
}

func TestACallWhoseRecordIsNotWrittenFails(t *testing.T) {
	t.Parallel()
	f, r := newFakeRun()
	lost := errors.New("the run is lost")
	go func() {
		<-f.writing
		f.proceed <- lost
	}()
	if err := r.addCall(t.Context(), state.Call{Key: "a", ID: "id-a"}); !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
}

// What a run has sent to a person stands in each later checkpoint, and is not needed any more
// once it is void: the next owner of the run must not ask again.
func TestWhatARunHasSentToPeopleStandsInItsCheckpoint(t *testing.T) {
	t.Parallel()
	var b Record
	c := state.New("agent.lead", "task-0001", "")
	b.sent.note(state.Wait{Entity: "human.ada", TaskID: "task-0002", Key: "ask"})
	if _, ok := b.sent.find(nil, "task-0002"); !ok {
		t.Error("a task that was just sent is not known")
	}
	b.KeepSent(c)
	b.KeepSent(c)
	if len(c.Mesh.Waits) != 1 || c.Mesh.Waits[0].Key != "ask" || c.Mesh.Waits[0].Void {
		t.Fatalf("the checkpoint has %+v", c.Mesh.Waits)
	}
	var next Record // of the next owner
	if w, ok := next.sent.find(c, "task-0002"); !ok || w.Entity != "human.ada" {
		t.Errorf("the next owner finds %+v, %v", w, ok)
	}
	next.sent.void("task-0002")
	if w, _ := next.sent.find(c, "task-0002"); !w.Void {
		t.Error("a void task is needed")
	}
	next.KeepSent(c)
	if !c.Mesh.Waits[0].Void {
		t.Errorf("the checkpoint has %+v", c.Mesh.Waits)
	}
}

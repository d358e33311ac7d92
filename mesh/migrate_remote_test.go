package mesh_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

func TestARunGoesToAnotherPlatformInTheMiddleOfAGeneration(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	v.write(wordsInTurn + 3)
	v.move()
	run := within(t, "the target", v.target.begun)
	if !run.Restored() {
		t.Error("it begins anew")
	}
	v.target.speak(1)
	equal(t, "the next word", within(t, "a word", v.target.told), "target:"+strings.SplitAfter(text(1), " ")[3])
	eventually(t, "the caller hears it", func() bool { return strings.HasSuffix(v.heard.so(), "is one ") })
	c := v.berlin.record(v.task)
	equal(t, "status in berlin", c.Doc.Status, aaif.RunMigrating)
	equal(t, "phase in berlin", c.Mesh.Migration.Phase, state.PhaseRelaying)
	v.finish("target")
	p := v.inParis()
	equal(t, "status in paris", p.Doc.Status, aaif.RunCompleted)
	equal(t, "parent", p.Mesh.Parent.Kind+" "+p.Mesh.Parent.Platform, "migration berlin")
	equal(t, "handoffs", v.handoffs(), "running")
}

func TestARunGoesToAnotherPlatformWhileItAwaitsATool(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]int64{"until it is done": 0, "with the call": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVoyage(t)
			v.write(2 * wordsInTurn)
			call := within(t, "the tool call", v.source.tools)
			result, err := v.command(intents.MigrateTask{Target: intents.Target{ID: v.task.ID}, To: v.server.URL, WaitMS: wait})
			if err != nil || !result.Migrating {
				t.Fatalf("%+v, %v", result, err)
			}
			want := state.EffectInFlight
			if wait == 0 {
				want = state.EffectDone
				close(call)
			}
			run := within(t, "the target", v.target.begun)
			if e := run.View().Mesh.Effects; len(e) != 1 || e[0].Status != want {
				t.Errorf("effects %+v", e)
			}
			v.finish("target")
		})
	}
}

func TestARunGoesToAnotherPlatformBetweenTurns(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	v.write(wordsInTurn - 1)
	held := v.sourceAt.hold(mesh.PointBeforeCommit)
	v.source.speak(1)
	release := within(t, "the commit of the turn", held)
	moved := make(chan struct{})
	go func() { v.move(); close(moved) }()
	close(release)
	within(t, "the answer", moved)
	within(t, "the target", v.target.begun)
	v.finish("target")
}

// A paused run goes at once, and waits there until it is resumed, from
// here.
func TestAPausedRunGoesToAnotherPlatform(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	v.write(wordsInTurn + 1)
	target := intents.Target{ID: v.task.ID}
	if _, err := v.command(intents.PauseTask{Target: target}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is paused", func() bool { return v.berlin.record(v.task).Doc.Status == aaif.RunPaused })
	v.berlin.drainedQueue()
	v.move()
	eventually(t, "it is in paris", func() bool {
		c := v.inParis()
		return c != nil && c.Doc.Status == aaif.RunPaused && v.berlin.record(v.task).Mesh.Migration.Phase == state.PhaseRelaying
	})
	result, err := v.command(intents.ResumeTask{Target: target})
	if err != nil || !result.Resumed {
		t.Fatalf("resume from berlin: %+v, %v", result, err)
	}
	within(t, "the target", v.target.begun)
	v.finish("target")
}

// A run that is elsewhere obeys who has sent its task.
func TestARunThatIsElsewhereIsCancelled(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	v.write(2)
	v.move()
	within(t, "the target", v.target.begun)
	eventually(t, "it is relayed", func() bool { return v.berlin.record(v.task).Mesh.Migration.Phase == state.PhaseRelaying })
	result, err := v.command(intents.CancelTask{ID: v.task.ID, Reason: "enough"})
	if err != nil || !result.Cancelled {
		t.Fatalf("cancel: %+v, %v", result, err)
	}
	within(t, "the reply", v.heard.done)
	if codeOf(v.heard.err) != envelope.CodeCancelled {
		t.Errorf("the caller hears %v", v.heard.err)
	}
	equal(t, "status in berlin", v.berlin.record(v.task).Doc.Status, aaif.RunFailed)
	equal(t, "status in paris", v.inParis().Doc.Status, aaif.RunFailed)
}

// Whatever keeps a run from going, it goes on where it is, and nothing is left
// where it was to go.
func TestARunThatDoesNotGetToAnotherPlatform(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for name, tt := range map[string]struct {
		change func(*voyage)
		before func(*voyage)
		left   string
		why    string
	}{
		"nobody there": {before: func(v *voyage) { v.gate.down.Store(true) }, why: "the receiver cannot be reached"},
		"a certificate of an unknown authority": {change: func(v *voyage) {
			v.trust = func(url string) (*handoff.Client, error) { return handoff.NewClient(url, handoff.ClientOptions{}) }
		}, why: "of an unknown authority: name the file of the authority that signed it with --handoff-ca"},
		"a server that is no receiver": {before: func(v *voyage) { v.gate.answering(http.StatusNotFound, "no such page") }, why: "the receiver answers 404 Not Found"},
		"a page that is no answer":     {before: func(v *voyage) { v.gate.answering(http.StatusOK, "<html>") }, why: "the answer is not that of a receiver"},
		"a receiver without room":      {before: func(v *voyage) { v.gate.answering(http.StatusServiceUnavailable, `{"code":"busy"}`) }, why: "the receiver has no room for now"},
		"an unknown key":               {change: func(v *voyage) { v.parisKeys = new(sign.Ring) }, why: `the other side says token_key: the token's key does not count here: key "berlin-1" is not known`},
		"an unknown agent":             {change: func(v *voyage) { v.targetEntity = "agent.somebody_else" }, why: "unknown_agent"},
		"a connection that breaks": {before: func(v *voyage) {
			v.gate.cutting(func(r *http.Request) bool { return r.Method == http.MethodPost })
		}, left: "refused"},
		"a target that dies in the stream": {change: func(v *voyage) {
			v.receiverAt = func(phase state.Phase, done bool) {
				if phase == state.PhaseStaged && !done {
					panic(http.ErrAbortHandler)
				}
			}
		}, left: "refused"},
		"a target that dies staged": {change: func(v *voyage) {
			v.receiverAt = func(phase state.Phase, done bool) {
				if phase == state.PhaseStaged && done {
					panic(http.ErrAbortHandler)
				}
			}
		}, left: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVoyage(t, func(v *voyage) {
				if tt.change != nil {
					tt.change(v)
				}
			})
			v.write(2)
			if tt.before != nil {
				tt.before(v)
			}
			v.move()
			run := within(t, "the source to go on", v.source.begun)
			if !run.Restored() {
				t.Error("it begins anew")
			}
			c := v.berlin.record(v.task)
			equal(t, "phase", c.Mesh.Migration.Phase, state.PhaseAborted)
			if !strings.Contains(c.Mesh.Migration.Detail, tt.why) {
				t.Errorf("why: %s", c.Mesh.Migration.Detail)
			}
			v.finish("source")
			if v.inParis() != nil {
				t.Error("there is a run in paris")
			}
			if tt.left != "" { // told in the background
				eventually(t, "the target knows", func() bool { return v.known() })
			}
			equal(t, "handoffs", v.handoffs(), tt.left)
		})
	}
}

// The source dies at each point. Another worker of it finds out how things stand,
// and the caller hears everything once.
func TestSourceDiesOnTheWayToAnotherPlatform(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for _, tt := range []struct {
		at mesh.Point
		by string
	}{
		{mesh.PointAfterCommit, "second"},
		{mesh.PointOffer, "second"},
		{mesh.PointStaged, "second"},
		{mesh.PointBeforeMove + "committed", "second"},
		{mesh.PointAfterMove + "committed", "target"},
		{mesh.PointBeforeMove + "relaying", "target"},
		{mesh.PointAfterMove + "relaying", "target"},
	} {
		t.Run(string(tt.at), func(t *testing.T) {
			t.Parallel()
			v := newVoyage(t, shortLeases)
			v.write(wordsInTurn + 2)
			held := v.sourceAt.hold(tt.at)
			v.move()
			release := within(t, "the point", held)
			second := newAuthor("second")
			v.serveBerlin(second, newPoints(t))
			v.sourceNC.Close()
			close(release)
			second.speak(100)
			go func() {
				select {
				case c := <-second.tools:
					close(c)
				case <-v.heard.done:
				}
			}()
			v.finish(tt.by)
			if tt.by == "second" && v.inParis() != nil {
				t.Error("there is a run in paris, too")
			}
		})
	}
}

// The relay dies in the middle, and so does the way to the target.
func TestRepliesOfARunThatIsElsewhereGetThrough(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	v := newVoyage(t, shortLeases)
	v.write(2)
	v.move()
	within(t, "the target", v.target.begun)
	said := 2
	say := func(n int) {
		t.Helper()
		said += n
		v.target.speak(n)
		for range n {
			within(t, "a word", v.target.told)
		}
		eventually(t, "the caller hears them", func() bool { return len(strings.Fields(v.heard.so())) == said })
	}
	say(2)
	v.gate.down.Store(true)
	v.server.CloseClientConnections()
	v.target.speak(2) // meanwhile
	for range 2 {
		within(t, "a word", v.target.told)
	}
	said += 2
	v.gate.down.Store(false)
	say(1)
	second := newAuthor("second")
	v.serveBerlin(second, newPoints(t))
	v.sourceNC.Close()
	say(3)
	v.finish("target")
}

// A dead letter that is retried has replies of its own behind those of the first try.
func TestARetriedRunThatIsElsewhereIsAnswered(t *testing.T) {
	t.Parallel()
	for name, spoken := range map[string]bool{"silent": false, "streamed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int32
			v := newVoyage(t, func(v *voyage) {
				v.sourceHandler = mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
					if tries.Add(1) > 1 {
						return v.source.Handle(ctx, task)
					}
					v.source.begun <- task.Run()
					if err := task.EmitText("no "); err != nil {
						return nil, err
					}
					return nil, envelope.Errorf(envelope.CodeUnavailable, "the model is away")
				})
				v.targetHandler = mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
					if spoken {
						if err := task.EmitText("yes"); err != nil {
							return nil, err
						}
					}
					return json.RawMessage(`{"by":"target"}`), nil
				})
			})
			within(t, "the error", v.heard.done)
			v.berlin.drainedQueue()
			letters := v.berlin.letters()
			if len(letters) != 1 {
				t.Fatalf("%d dead letters", len(letters))
			}
			if _, err := v.berlin.dead().Retry(ctxFor(t), letters[0].Seq); err != nil {
				t.Fatal(err)
			}
			within(t, "the second try", v.source.begun)
			v.move()
			v.berlin.drainedQueue()
			equal(t, "status in berlin", v.berlin.record(v.task).Doc.Status, aaif.RunCompleted)
			last, err := jetstream.NewReplies(v.berlin.js(v.berlin.nc), v.berlin.m).Last(ctxFor(t), reviewer, v.task.ID)
			if err != nil || string(parse(t, last.Data).Payload) != `{"by":"target"}` {
				t.Errorf("the last reply is %s, %v", last.Data, err)
			}
			said := 0
			for _, e := range v.berlin.replies(v.task) {
				if e.Type == envelope.TypeStream && strings.Contains(string(e.Payload), "yes") {
					said++
				}
			}
			if spoken != (said == 1) {
				t.Errorf("what the target said was stored %d times", said)
			}
		})
	}
}

// What is relayed has the encoding of the task, as every reply has.
func TestRelayedRepliesHaveTheEncodingOfTheTask(t *testing.T) {
	t.Parallel()
	v := newVoyage(t, func(v *voyage) { v.cbor = true })
	v.move()
	within(t, "the target", v.target.begun)
	v.target.speak(3)
	n := 0
	for msg, err := range jetstream.NewReplies(v.berlin.js(v.berlin.nc), v.berlin.m).Follow(ctxFor(t), reviewer, v.task.ID, jetstream.FollowOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if got := msg.Header.Get("Content-Type"); got != envelope.ContentCBOR {
			t.Errorf("reply %d has the type %q", n, got)
		}
		if n++; n == 3 {
			break
		}
	}
}

// From when the source has let go until the target has said whether it runs the
// run, no worker runs it; however long that takes.
func TestARunInDoubt(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]bool{"accepted": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVoyage(t)
			v.write(2)
			held := v.sourceAt.hold(mesh.PointBeforeMove + "committed")
			v.move()
			release := within(t, "the point", held)
			v.gate.down.Store(true)
			close(release)
			eventually(t, "it is in doubt", func() bool { return v.berlin.record(v.task).Mesh.Migration.Phase == state.PhaseCommitted })
			abort := intents.MigrateTask{Target: intents.Target{ID: v.task.ID}, Abort: true}
			if _, err := v.command(abort); codeOf(err) != envelope.CodeDenied {
				t.Errorf("an abort in doubt: %v", err)
			}
			if refused {
				id := v.berlin.record(v.task).Mesh.Migration.ID
				if _, err := v.receiver().Refuse(ctxFor(t), id, reviewer, "an operator said no"); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-v.source.begun:
				t.Fatal("the source runs it")
			case <-v.target.begun:
				t.Fatal("the target runs it")
			default:
			}
			v.gate.down.Store(false)
			if refused {
				within(t, "the source", v.source.begun)
				v.finish("source")
				return
			}
			within(t, "the target", v.target.begun)
			v.finish("target")
		})
	}
}

// receiver is another one on the stores of paris.
func (v *voyage) receiver() *handoff.Receiver {
	v.t.Helper()
	node := v.paris.lane(mesh.Config{Entity: "service.handoff", Verifier: sign.Verifier{Ring: v.parisKeys}, Limits: v.limits})
	r, err := node.Receiver(mesh.ReceiverOptions{Platform: "paris", Handoffs: jetstream.NewHandoffs(v.paris.js(v.paris.nc), v.paris.m)})
	if err != nil {
		v.t.Fatal(err)
	}
	return r
}

// The receiver dies when it has stored the run, before it accepts it, and the record of the handoff
// expires. The source takes the run back; the next receiver deletes what the first one has stored.
func TestARunThatATargetPreparedAndNeverAcceptedIsDeleted(t *testing.T) {
	t.Parallel()
	var once sync.Once
	v := newVoyage(t, func(v *voyage) {
		v.receiverAt = func(phase state.Phase, done bool) {
			if phase == state.PhaseAccepted && !done {
				once.Do(func() {
					id := v.inParis().Mesh.Migration.ID
					if err := v.handoffStore().Delete(ctxFor(v.t), state.ID{Entity: "service.handoff", Run: id}); err != nil {
						v.t.Error(err)
					}
					panic(http.ErrAbortHandler)
				})
			}
		}
	})
	v.write(2)
	v.move()
	within(t, "the source to go on", v.source.begun)
	v.finish("source")
	if v.inParis() == nil {
		t.Fatal("no run was prepared")
	}
	if _, _, err := v.receiver().Collect(ctxFor(t)); err != nil {
		t.Fatal(err)
	}
	if c := v.inParis(); c != nil {
		t.Errorf("the run is in paris, %s", c.Doc.Status)
	}
	equal(t, "handoffs", v.handoffs(), "refused")
}

func TestARunDoesNotLeaveInPlaintext(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	v.write(2)
	_, err := v.command(intents.MigrateTask{Target: intents.Target{ID: v.task.ID}, To: "http://paris.example"})
	if codeOf(err) != envelope.CodeDenied || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("over http: %v", err)
	}
	v.finish("source")
}

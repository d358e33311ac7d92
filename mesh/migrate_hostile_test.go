package mesh_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// A hostile receiver takes a run in, and then says what the test wants it to say
// as the run's replies: first one list of lines, and on every later connection the
// second.
func (v *voyage) hostile(first, later func() []handoff.Reply) (asked *atomic.Int64) {
	asked = new(atomic.Int64)
	v.gate.mu.Lock()
	defer v.gate.mu.Unlock()
	v.gate.lie = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/replies") {
			return false
		}
		lines := later
		if asked.Add(1) == 1 {
			lines = first
		}
		enc := json.NewEncoder(w)
		for _, line := range lines() {
			_ = enc.Encode(line)
		}
		return true
	}
	return asked
}

// replyOf is what a receiver that keeps to the protocol answers, changed.
func (v *voyage) replyOf(seq uint64, last bool, change ...func(*envelope.Envelope)) handoff.Reply {
	kind, payload := envelope.TypeStream, fmt.Sprintf(`{"text":"piece","seq":%d}`, seq)
	if last {
		kind, payload = envelope.TypeResult, `{"by":"a hostile receiver"}`
	}
	e := v.task.Reply(kind, json.RawMessage(payload))
	for _, f := range change {
		f(e)
	}
	raw, err := e.AppendJSON(nil)
	if err != nil {
		v.t.Error(err)
	}
	return handoff.Reply{Seq: seq, Data: raw, Last: last}
}

// Finding 3 of the security review: the source signs what it builds from its own
// task, and nothing that a peer has put together.
func TestAPeerHasNothingSignedButTheAnswerToItsTask(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for name, tt := range map[string]struct {
		first  func(v *voyage, next uint64) []handoff.Reply
		passes int // of the first lines
	}{
		"a task for another agent": {first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(next, false, func(e *envelope.Envelope) {
				e.Type, e.To, e.Intent, e.Payload = envelope.TypeTask, "agent.bank", "bank.transfer", json.RawMessage(`{"amount":1000000}`)
			})}
		}},
		"a task for its sender": {first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(next, false, func(e *envelope.Envelope) { e.Type = envelope.TypeTask })}
		}},
		"an event": {first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(next, false, func(e *envelope.Envelope) { e.Type = envelope.TypeEvent })}
		}},
		"an answer to somebody else": {first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(next, false, func(e *envelope.Envelope) { e.To = "human.bob" })}
		}},
		"another intent": {first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(next, true, func(e *envelope.Envelope) { e.Intent = "bank.transfer" })}
		}},
		"another correlation": {first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(next, false, func(e *envelope.Envelope) { e.Corr = "somebody-elses-work" })}
		}},
		"an answer to another task": {first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(next, false, func(e *envelope.Envelope) { e.ReplyTo = envelope.NewID() })}
		}},
		"another agent's answer": {first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(next, true, func(e *envelope.Envelope) { e.From = "agent.bank" })}
		}},
		"requirements": {first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(next, true, func(e *envelope.Envelope) { e.Requires = json.RawMessage(`{"stream":true}`) })}
		}},
		"a result that is not the last": {first: func(v *voyage, next uint64) []handoff.Reply {
			result := v.replyOf(next, true)
			result.Last = false
			return []handoff.Reply{result}
		}},
		"a piece that is the last": {first: func(v *voyage, next uint64) []handoff.Reply {
			piece := v.replyOf(next, false)
			piece.Last = true
			return []handoff.Reply{piece}
		}},
		"a piece under another's number": {first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(next, false, func(e *envelope.Envelope) { e.Payload = json.RawMessage(`{"text":"x","seq":1}`) })}
		}},
		"a number beyond all numbers": {first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(1<<63, true)}
		}},
		"a forged signature": {first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(next, true, func(e *envelope.Envelope) {
				forged, _, err := sign.NewKey("berlin-1", sign.Ed25519, reviewer)
				if err == nil {
					err = forged.Sign(e)
				}
				if err != nil {
					v.t.Error(err)
				}
			})}
		}},
		"two ends": {passes: 1, first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(next, true), v.replyOf(next+1, true)}
		}},
		"pieces after the end": {passes: 1, first: func(v *voyage, next uint64) []handoff.Reply {
			return []handoff.Reply{v.replyOf(next, true), v.replyOf(next+1, false)}
		}},
		"members of its own, and an id that is another message's": {passes: 2, first: func(v *voyage, next uint64) []handoff.Reply {
			odd := func(e *envelope.Envelope) {
				e.ID = "answer.of-another-run"
				e.Priority = envelope.PriorityUrgent
				e.Trace = json.RawMessage(`{"trace_id":"of the peer"}`)
				e.Extra = []envelope.Member{{Name: "approved_by", Value: json.RawMessage(`"human.ceo"`)}}
			}
			return []handoff.Reply{v.replyOf(next, false, odd), v.replyOf(next+1, true, odd)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVoyage(t)
			const said = 2
			v.write(said)
			next := uint64(said + 1)
			asked := v.hostile(
				func() []handoff.Reply { return tt.first(v, next) },
				func() []handoff.Reply { return []handoff.Reply{v.replyOf(next, true)} })
			v.move()
			within(t, "the reply", v.heard.done)
			if v.heard.err != nil {
				t.Fatal(v.heard.err)
			}
			v.berlin.stored(v.task, v.heard.reply)
			all := v.berlin.replies(v.task)
			kinds := make([]string, len(all))
			for i, e := range all {
				kinds[i] = string(e.Type)
				if e.From != reviewer || e.To != ada || e.Intent != v.task.Intent || e.Corr != v.task.Corr || e.ReplyTo != v.task.ID || e.Requires != nil {
					t.Errorf("reply %d is none to the task: %+v", i+1, e)
				}
				if len(e.Extra) > 0 || e.Priority != v.task.Priority || strings.Contains(string(e.Trace), "peer") || strings.HasPrefix(e.ID, "answer.") {
					t.Errorf("reply %d has what the peer put into it: %+v", i+1, e)
				}
				if id, err := v.berlinKeys.Verify(e, time.Now()); err != nil || id.KID != "berlin-1" {
					t.Errorf("reply %d: signed by %q, %v", i+1, id.KID, err)
				}
			}
			want := append(slices.Repeat([]string{"stream"}, said+max(0, tt.passes-1)), "result")
			equal(t, "replies", strings.Join(kinds, " "), strings.Join(want, " "))
			connections := int64(2)
			if tt.passes > 0 {
				connections = 1
			}
			equal(t, "connections", asked.Load(), connections)
		})
	}
}

// What the peer has signed with a key that is trusted here stays signed by it, as
// long as it answers this task.
func TestAPeersSignatureIsKeptWhereItIsTrusted(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	peer := newKey(t, "paris-9", v.berlinKeys)
	signed := func(e *envelope.Envelope) {
		if err := peer.Sign(e); err != nil {
			t.Error(err)
		}
	}
	v.write(2)
	asked := v.hostile(
		func() []handoff.Reply {
			return []handoff.Reply{
				v.replyOf(3, false, signed),
				v.replyOf(4, false, func(e *envelope.Envelope) { e.To = "human.bob" }, signed),
			}
		},
		func() []handoff.Reply { return []handoff.Reply{v.replyOf(4, true, signed)} })
	v.move()
	within(t, "the reply", v.heard.done)
	if v.heard.err != nil {
		t.Fatal(v.heard.err)
	}
	v.berlin.stored(v.task, v.heard.reply)
	var kids []string
	for _, e := range v.berlin.replies(v.task) {
		id, err := v.berlinKeys.Verify(e, time.Now())
		if err != nil {
			t.Error(err)
		}
		kids = append(kids, id.KID)
	}
	equal(t, "signed by", strings.Join(kids, " "), "berlin-1 berlin-1 paris-9 paris-9")
	equal(t, "connections", asked.Load(), int64(2))
}

// What no message can carry here ends the run here: it is as large the next time.
func TestAPeersReplyThatIsTooLarge(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]bool{"a piece": false, "a result": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVoyage(t)
			v.write(2)
			large := func() []handoff.Reply {
				return []handoff.Reply{v.replyOf(3, last, func(e *envelope.Envelope) {
					e.Payload = mustJSON(map[string]any{"seq": 3, "text": strings.Repeat("x", int(v.berlin.nc.MaxPayload())-1000)})
				})}
			}
			v.hostile(large, large)
			v.move()
			within(t, "the reply", v.heard.done)
			if codeOf(v.heard.err) != envelope.CodeTooLarge {
				t.Errorf("the caller hears %v", v.heard.err)
			}
		})
	}
}

// What cannot be sent as CBOR, or not be signed, ends the run here too.
func TestAPeersReplyThatCannotBeSentAsCBOR(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		payload json.RawMessage
		want    envelope.Code
	}{
		"too large": {manyTenths(10_000), envelope.CodeTooLarge},
		"no double": {json.RawMessage(`{"seq":3,"n":9007199254740993}`), envelope.CodeOutputSchema},
	} {
		for kind, last := range map[string]bool{"piece": false, "result": true} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				v := newVoyage(t, func(v *voyage) { v.berlin, v.cbor = inSmallMessages(t), true })
				v.write(2)
				odd := func() []handoff.Reply {
					return []handoff.Reply{v.replyOf(3, last, func(e *envelope.Envelope) { e.Payload = tt.payload })}
				}
				asked := v.hostile(odd, odd)
				v.move()
				within(t, "the reply", v.heard.done)
				if codeOf(v.heard.err) != tt.want {
					t.Errorf("the caller hears %v, want %s", v.heard.err, tt.want)
				}
				equal(t, "connections", asked.Load(), int64(1))
			})
		}
	}
}

// ended is the receipt of a hostile receiver, for a run that has ended with a changed reply.
func (p *parcel) ended(status handoff.Status, change func(*envelope.Envelope)) handoff.Receipt {
	p.t.Helper()
	reply := p.task.Reply(envelope.TypeResult, json.RawMessage(`{"by":"a hostile receiver"}`))
	change(reply)
	raw, err := reply.AppendJSON(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	v := transfer.Verdict{
		Handoff: status.Handoff, Issuer: reviewer, Source: "berlin", Target: "paris", RunID: status.Run, Outcome: transfer.OutcomeEnded, Issued: time.Now(),
	}
	if v.Reply, err = reply.Hash(); err != nil {
		p.t.Fatal(err)
	}
	out := handoff.Receipt{Handoff: status.Handoff, Entity: reviewer, Run: status.Run, Reply: raw}
	if out.Verdict, err = v.Sign(p.paris1); err != nil {
		p.t.Fatal(err)
	}
	return out
}

// The reply in a receipt that cannot be sent here ends the run here with an error, as one that is
// relayed does.
func TestAReceiptWhoseReplyCannotBeSent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		payload json.RawMessage
		cbor    bool
	}{
		"too large":         {payload: mustJSON(map[string]string{"text": strings.Repeat("x", 64<<10)})},
		"too large as CBOR": {payload: manyTenths(10_000), cbor: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParcel(t, func(v *voyage) { v.berlin, v.cbor = inSmallMessages(t), tt.cbor })
			p.write(2)
			status, err := p.receiver.Import(ctxFor(t), p.mustExport(), nil)
			if err != nil {
				t.Fatal(err)
			}
			receipt := p.ended(status, func(e *envelope.Envelope) { e.Payload = tt.payload })
			for range 2 {
				if _, err := p.office.Confirm(ctxFor(t), receipt, mesh.ConfirmOptions{Signer: p.signer}); err != nil {
					t.Fatal(err)
				}
			}
			within(t, "the reply", p.heard.done)
			if codeOf(p.heard.err) != envelope.CodeTooLarge {
				t.Errorf("the caller hears %v", p.heard.err)
			}
			c := p.berlin.record(p.task)
			equal(t, "status", c.Doc.Status, aaif.RunFailed)
			if id, err := p.berlinKeys.Verify(parse(t, c.Mesh.Reply), time.Now()); err != nil || id.KID != "berlin-1" {
				t.Errorf("signed by %q, %v", id.KID, err)
			}
		})
	}
}

// A receipt may be confirmed again after an earlier release has stored its reply, which cannot be
// sent. The caller gets the error in its place; the record keeps the reply.
func TestAReceiptThatWasConfirmedWithAReplyThatCannotBeSent(t *testing.T) {
	t.Parallel()
	p := newParcel(t, func(v *voyage) { v.berlin, v.cbor = inSmallMessages(t), true })
	p.write(2)
	status, err := p.receiver.Import(ctxFor(t), p.mustExport(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var reply *envelope.Envelope
	receipt := p.ended(status, func(e *envelope.Envelope) { e.Payload, reply = manyTenths(10_000), e })
	p.berlin.rewrite(p.task, func(c *state.Checkpoint) { run.End(c, run.Ending{Reply: encode(t, reply), Target: "paris"}) })
	for range 2 {
		if _, err := p.office.Confirm(ctxFor(t), receipt, mesh.ConfirmOptions{Signer: p.signer}); err != nil {
			t.Fatal(err)
		}
	}
	within(t, "the reply", p.heard.done)
	if codeOf(p.heard.err) != envelope.CodeTooLarge {
		t.Errorf("the caller hears %v", p.heard.err)
	}
	ends := 0
	for msg, err := range jetstream.NewReplies(p.berlin.js(p.berlin.nc), p.berlin.m).Read(ctxFor(t), reviewer, p.task.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if msg.Header.Get(nats.MsgIdHdr) == reply.ID {
			ends++
		}
	}
	equal(t, "replies under the id of the one in the record", ends, 1)
	equal(t, "reply in the record", string(p.berlin.record(p.task).Mesh.Reply), string(encode(t, reply)))
}

// The same holds for the reply that comes in a receipt.
func TestAReceiptHasNothingSignedButTheAnswerToItsTask(t *testing.T) {
	t.Parallel()
	p := newParcel(t)
	p.write(2)
	status, err := p.receiver.Import(ctxFor(t), p.mustExport(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*envelope.Envelope){
		"a task": func(e *envelope.Envelope) {
			e.Type, e.To, e.Intent = envelope.TypeTask, "agent.bank", "bank.transfer"
		},
		"a piece":                    func(e *envelope.Envelope) { e.Type = envelope.TypeStream },
		"an answer to somebody else": func(e *envelope.Envelope) { e.To = "human.bob" },
		"another intent":             func(e *envelope.Envelope) { e.Intent = "bank.transfer" },
		"another correlation":        func(e *envelope.Envelope) { e.Corr = "somebody-elses-work" },
		"requirements":               func(e *envelope.Envelope) { e.Requires = json.RawMessage(`{"stream":true}`) },
	} {
		if _, err := p.office.Confirm(ctxFor(t), p.ended(status, change), mesh.ConfirmOptions{Signer: p.signer}); !errors.Is(err, transfer.ErrTokenState) {
			t.Errorf("%s: %v", name, err)
		}
	}
	odd := p.ended(status, func(e *envelope.Envelope) {
		e.ID, e.Extra = "answer.of-another-run", []envelope.Member{{Name: "approved_by", Value: json.RawMessage(`"human.ceo"`)}}
	})
	if _, err := p.office.Confirm(ctxFor(t), odd, mesh.ConfirmOptions{Signer: p.signer}); err != nil {
		t.Fatal(err)
	}
	within(t, "the reply", p.heard.done)
	e := p.heard.reply
	if e == nil || len(e.Extra) > 0 || strings.HasPrefix(e.ID, "answer.") {
		t.Errorf("the reply has what the peer put into it: %+v, %v", e, p.heard.err)
	} else if id, err := p.berlinKeys.Verify(e, time.Now()); err != nil || id.KID != "berlin-1" {
		t.Errorf("signed by %q, %v", id.KID, err)
	}
}

// Finding 8 of the security review, with two runs in paris and everything signed:
// berlin's key speaks for the agent, and commands the run that berlin handed over.
func TestASourceCommandsNoRunThatItDidNotHandOver(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "eu.paris"} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			t.Parallel()
			aSourceCommandsNoRunThatItDidNotHandOver(t, prefix)
		})
	}
}

func aSourceCommandsNoRunThatItDidNotHandOver(t *testing.T, prefix string) {
	v := newVoyage(t, func(v *voyage) { v.paris, v.parisMode = v.paris.under(prefix), sign.Required })
	adas := newKeyFor(t, "ada-1", ada, v.parisKeys)
	v.write(2)
	v.move()
	within(t, "the target", v.target.begun)
	eventually(t, "it is relayed", func() bool { return v.berlin.record(v.task).Mesh.Migration.Phase == state.PhaseRelaying })

	// A run of ada's own in paris, that waits for its first word.
	own := requiring(newTask(reviewer, "code.review", `{}`), `{"stream":true}`)
	own.Corr = v.task.Corr
	if err := errors.Join(mesh.BindTask(own, prefix, true), adas.Sign(own)); err != nil {
		t.Fatal(err)
	}
	inParis := v.paris.lane(mesh.Config{Entity: ada, Signer: adas, Verifier: sign.Verifier{Ring: v.parisKeys}})
	v.paris.submit(inParis, own)
	within(t, "ada's run", v.target.begun)

	p, err := handoff.NewClient(v.server.URL, handoff.ClientOptions{TLS: v.trusting()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	id := v.berlin.record(v.task).Mesh.Migration.ID
	ownRun := state.RunID(reviewer, own.ID)
	for _, payload := range []string{
		`{"id":"` + own.ID + `","durable":true}`, `{"run":"` + ownRun + `"}`, `{"corr":"` + own.Corr + `"}`,
		`{"run":"` + state.RunID(reviewer, v.task.ID) + `","ID":"` + own.ID + `"}`,
	} {
		e := envelope.New(envelope.TypeTask, reviewer, reviewer, intents.TaskCancel, json.RawMessage(payload))
		if err := v.signer.Sign(e); err != nil {
			t.Fatal(err)
		}
		raw, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		request, err := transfer.Request{Handoff: id, Issuer: reviewer, Target: "paris", Action: handoff.ActionCommand, Issued: time.Now()}.Sign(v.signer)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := p.Command(ctxFor(t), id, request, raw); err == nil {
			t.Errorf("%s: %s", payload, answer)
		}
	}
	equal(t, "ada's run", v.paris.record(own).Doc.Status, aaif.RunRunning)
	if prefix != "" {
		// Nor where it can publish there: what berlin signs for its own mesh, which has
		// no prefix, commands in paris what came from another platform only.
		e := signed(t, v.signer, envelope.New(envelope.TypeTask, reviewer, reviewer, intents.TaskCancel, json.RawMessage(`{"run":"`+ownRun+`","durable":true}`)))
		to, _ := v.paris.m.Ctl(reviewer)
		problem := errorOf(t, parse(t, v.paris.requestRaw(to, encode(t, e), nil).Data))
		equal(t, "a command of another mesh", problem.Code, envelope.CodeRequires)
		equal(t, "ada's run", v.paris.record(own).Doc.Status, aaif.RunRunning)
	}

	// The run that was handed over obeys.
	result, err := v.command(intents.CancelTask{ID: v.task.ID, Reason: "enough"})
	if err != nil || !result.Cancelled {
		within(t, "the reply", v.heard.done)
		t.Fatalf("cancel: %+v, %v; the run ended with %+v, %v", result, err, v.heard.reply, v.heard.err)
	}
	within(t, "the reply", v.heard.done)
	equal(t, "ada's run", v.paris.record(own).Doc.Status, aaif.RunRunning)
}

// While a run is elsewhere its source does not pass on that it be moved.
func TestARunThatIsElsewhereIsNotMovedFromHere(t *testing.T) {
	t.Parallel()
	v := newVoyage(t)
	v.write(2)
	v.move()
	within(t, "the target", v.target.begun)
	eventually(t, "it is relayed", func() bool { return v.berlin.record(v.task).Mesh.Migration.Phase == state.PhaseRelaying })
	_, err := v.command(intents.MigrateTask{Target: intents.Target{ID: v.task.ID}, To: intents.MigrateAny})
	if codeOf(err) != envelope.CodeDenied || !strings.Contains(err.Error(), "paris") {
		t.Errorf("a move: %v", err)
	}
	v.finish("target")
}

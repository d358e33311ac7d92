package delegated_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

func wantCode(t *testing.T, err error, code envelope.Code) {
	t.Helper()
	var problem *envelope.Error
	if !errors.As(err, &problem) || problem.Code != code {
		t.Errorf("%v, want %s", err, code)
	}
}

func unsigned(*envelope.Envelope) error { return nil }

// delegate makes the task that from sends to the receiver for task.
func delegate(t *testing.T, h *delegated.Handed, task *envelope.Envelope, from, to string) (*envelope.Envelope, json.RawMessage) {
	t.Helper()
	next, err := h.Next(task, from, to, unsigned)
	if err != nil {
		t.Fatal(err)
	}
	e := envelope.New(envelope.TypeTask, from, to, task.Intent, nil)
	e.Corr = task.Corr
	return e, wire.MustJSON(next)
}

// A task that was delegated twice names the first one, and its answer and epoch are those of that one.
func TestATaskThatWasDelegatedTwice(t *testing.T) {
	t.Parallel()
	first := envelope.New(envelope.TypeTask, "human.ada", "agent.a", "x.y.z", nil)
	second, raw := delegate(t, nil, first, "agent.a", "agent.b")
	h, forbidden, err := delegated.Check(raw, second, sign.Verifier{}, time.Now(), 8)
	if err != nil || forbidden || h.Task != first.ID || h.Caller != "human.ada" || len(h.Chain) != 1 {
		t.Fatalf("%+v, %v, %v", h, forbidden, err)
	}
	cased := append(bytes.TrimSuffix(slices.Clone(raw), []byte("}")), `,"Caller":"human.eve"}`...)
	if h, _, err := delegated.Check(cased, second, sign.Verifier{}, time.Now(), 8); err != nil || h.Caller != "human.ada" {
		t.Errorf("a name in another case was taken for the caller: %+v, %v", h, err)
	}
	if ref, err := delegated.ReadRef(json.RawMessage(`{"entity":"agent.a","ENTITY":"agent.b"}`)); err != nil || ref.Entity != "agent.a" {
		t.Errorf("a name in another case was taken for the entity: %+v, %v", ref, err)
	}
	h.Epoch, h.Digest = 3, "digest"
	h.Chain = slices.Grow(h.Chain, 8)
	another, err := h.Next(second, "agent.b", "agent.d", unsigned)
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(h.Chain)
	third, raw := delegate(t, h, second, "agent.b", "agent.c")
	if !slices.Equal(h.Chain, before) {
		t.Error("the chain of the received task has changed")
	}
	toD := *second
	toD.From, toD.To = "agent.b", "agent.d"
	if _, _, err := delegated.Check(wire.MustJSON(another), &toD, sign.Verifier{}, time.Now(), 8); err != nil {
		t.Errorf("another delegation of the same task: %v", err)
	}
	h, _, err = delegated.Check(raw, third, sign.Verifier{}, time.Now(), 8)
	if err != nil || !slices.Equal(h.Links.Entities(), []string{"agent.a", "agent.b"}) {
		t.Fatalf("%+v, %v", h, err)
	}
	reply := third.Reply(envelope.TypeResult, nil)
	h.Address(reply)
	if reply.To != "human.ada" || reply.ReplyTo != first.ID || h.RunEpoch(4) != "7" {
		t.Errorf("%+v, epoch %s", reply, h.RunEpoch(4))
	}
	if header, digest := h.Proof(); header != strings.Join(h.Chain, " ") || digest != "digest" {
		t.Errorf("proof %q, %q", header, digest)
	}

	if h, _, err := delegated.Check(raw, third, sign.Verifier{}, time.Now(), 1); h == nil {
		t.Error("the chain of a task that was delegated too often is lost: its refusal could not be proven")
	} else {
		wantCode(t, err, envelope.CodeTreeLimit)
	}
	if h, _, err := delegated.Check(raw, third, sign.Verifier{Mode: sign.Required}, time.Now(), 8); h != nil {
		t.Error("unsigned links are accepted where signatures are required")
	} else {
		wantCode(t, err, envelope.CodeSigRequired)
	}
	for what, change := range map[string]func(*envelope.Envelope, map[string]any){
		"another task":      func(_ *envelope.Envelope, h map[string]any) { h["task"] = "task-0002" },
		"another caller":    func(_ *envelope.Envelope, h map[string]any) { h["caller"] = "human.eve" },
		"another corr":      func(e *envelope.Envelope, _ map[string]any) { e.Corr = "workflow-2" },
		"another receiver":  func(e *envelope.Envelope, _ map[string]any) { e.To = "agent.d" },
		"another sender":    func(e *envelope.Envelope, _ map[string]any) { e.From = "agent.d" },
		"a negative count":  func(_ *envelope.Envelope, h map[string]any) { h["stream"] = -1 },
		"too many streamed": func(_ *envelope.Envelope, h map[string]any) { h["stream"] = wire.MaxCount + 1 },
		"too many epochs":   func(_ *envelope.Envelope, h map[string]any) { h["epoch"] = wire.MaxCount + 1 },
		"no intent":         func(_ *envelope.Envelope, h map[string]any) { h["intent"] = "" },
		"many messages": func(_ *envelope.Envelope, h map[string]any) {
			h["steering"] = make([]map[string]string, run.MaxSteering+1)
		},
		"a long message": func(_ *envelope.Envelope, h map[string]any) {
			h["steering"] = []state.Steer{{Text: strings.Repeat("x", 32<<10+1)}}
		},
		"a message with a long id": func(_ *envelope.Envelope, h map[string]any) {
			h["steering"] = []state.Steer{{ID: strings.Repeat("x", wire.MaxName+1)}}
		},
	} {
		e, members := *third, map[string]any{}
		if err := json.Unmarshal(raw, &members); err != nil {
			t.Fatal(err)
		}
		change(&e, members)
		h, _, err := delegated.Check(wire.MustJSON(members), &e, sign.Verifier{}, time.Now(), 8)
		if h != nil || err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

func TestATaskThatWasNotDelegated(t *testing.T) {
	t.Parallel()
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.a", "x.y.z", nil)
	for raw, want := range map[string]bool{"": false, "true": false, "false": true} {
		h, forbidden, err := delegated.Check(json.RawMessage(raw), task, sign.Verifier{}, time.Now(), 8)
		if h != nil || forbidden != want || err != nil || delegated.Claimed(json.RawMessage(raw)) {
			t.Errorf("%q: %v, forbidden %v, %v", raw, h, forbidden, err)
		}
	}
	if _, _, err := delegated.Check(json.RawMessage(`7`), task, sign.Verifier{}, time.Now(), 8); err == nil {
		t.Error("a number is accepted")
	}
	var none *delegated.Handed
	reply, busy := task.Reply(envelope.TypeResult, nil), envelope.Errorf(envelope.CodeBusy, "busy")
	none.Address(reply)
	if reply.To != "human.ada" || reply.ReplyTo != task.ID || none.RunEpoch(4) != "4" || none.ErrorForCaller(busy) != busy {
		t.Errorf("%+v", reply)
	}
}

// An agent has begun the task when it delegates it, so the caller must not learn "not begun".
func TestErrorsThatTheCallerGets(t *testing.T) {
	t.Parallel()
	h := &delegated.Handed{}
	got := h.ErrorForCaller(envelope.Errorf(envelope.CodeBusy, "busy").WithBackoff(time.Second))
	if got.Code != envelope.CodeUnavailable || got.Message != "busy" || got.Backoff() != time.Second {
		t.Errorf("%+v", got)
	}
	if other := envelope.Errorf(envelope.CodeTimeout, "late"); h.ErrorForCaller(other) != other {
		t.Error("another error is replaced")
	}
}

func TestWhereATaskMayGo(t *testing.T) {
	t.Parallel()
	before := []string{"agent.a", "agent.b"}
	if err := delegated.MayGoTo("agent.c", before, 2); err != nil {
		t.Error(err)
	}
	wantCode(t, delegated.MayGoTo("agent.a", before, 8), envelope.CodeTreeLimit)
	wantCode(t, delegated.MayGoTo("agent.c", before, 1), envelope.CodeTreeLimit)
	if by, err := delegated.ReadBy(wire.MustJSON(before)); err != nil || !slices.Equal(by, before) {
		t.Errorf("%v, %v", by, err)
	}
	_, err := delegated.ReadBy(wire.MustJSON(make([]string, 65)))
	wantCode(t, err, envelope.CodeRequires)
}

// A cancel finds the receiver of a live task, for those who may cancel it and until its deadline.
func TestWhereDelegatedTasksAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p delegated.Passed
		task := envelope.New(envelope.TypeTask, "human.ada", "agent.a", "x.y.z", nil)
		task.Corr = "workflow-1"
		at := delegated.At{To: "agent.b", ID: "task-0002"}
		p.Add(task, "key", at, time.Minute)
		byID, byCorr := intents.CancelTask{ID: task.ID}, intents.CancelTask{Corr: "workflow-1"}
		for _, c := range []struct {
			what   intents.CancelTask
			from   string
			signed bool
			finds  bool
		}{
			{byID, "human.ada", true, true},
			{byCorr, "human.ada", true, true},
			{byID, "agent.a", true, true},
			{intents.CancelTask{ID: task.ID, From: "human.ada"}, "agent.a", true, true},
			{intents.CancelTask{ID: task.ID, From: "agent.c"}, "human.ada", true, false},
			{byID, "human.eve", true, false},
			{byID, "human.ada", false, false},
			{intents.CancelTask{ID: "task-0003"}, "human.ada", true, false},
			{intents.CancelTask{}, "human.ada", true, false},
		} {
			if got := p.Named(c.what, c.from, "agent.a", c.signed); (len(got) == 1 && got[0] == at) != c.finds || len(got) > 1 {
				t.Errorf("%+v of %s, signed %v: %v", c.what, c.from, c.signed, got)
			}
		}
		for i := range 5000 {
			more := *task
			more.ID = fmt.Sprintf("task-%d", i)
			p.Add(&more, "", at, time.Hour)
		}
		if n := len(p.Named(byCorr, "human.ada", "agent.a", true)); n == 0 || n > 4096 {
			t.Errorf("%d tasks are kept", n)
		}
		time.Sleep(time.Hour + 1)
		if got := p.Named(byCorr, "human.ada", "agent.a", true); len(got) > 0 {
			t.Errorf("%d tasks after their deadline", len(got))
		}
	})
}

func TestWhatARelayedReceiverGets(t *testing.T) {
	t.Parallel()
	c := state.New("agent.a", "task-0001", "")
	for i := range 30 {
		c.Doc.Conversation = append(c.Doc.Conversation, aaif.Message{Role: "user", Content: fmt.Sprintf("%d%s", i, strings.Repeat("x", 4<<10))})
	}
	var got struct {
		Text string `json:"text"`
		Over struct {
			By, Reason   string
			Conversation []struct{ Role, Content string }
		} `json:"handed_over"`
	}
	if err := json.Unmarshal(delegated.ForPerson(json.RawMessage(`{"text":"hi"}`), "agent.a", "why", c), &got); err != nil {
		t.Fatal(err)
	}
	talk := got.Over.Conversation
	if got.Text != "hi" || got.Over.By != "agent.a" || got.Over.Reason != "why" || len(talk) != 20 || !strings.HasPrefix(talk[0].Content, "10x") || len(talk[0].Content) > 3<<10 {
		t.Errorf("%d messages, reason %q", len(talk), got.Over.Reason)
	}
	if raw := delegated.ForPerson(json.RawMessage(`7`), "agent.a", "", nil); string(raw) != "7" {
		t.Errorf("%s", raw)
	}
	left := delegated.Relayed(json.RawMessage(`{"handoff":{},"context":1,"tree":{},"mesh":"m","lane":"durable","not_before":"x","timeout_ms":1,"stream":true,"format":"json","x":1}`))
	if len(left) != 2 || left["format"] == nil || left["x"] == nil {
		t.Errorf("%s", left)
	}
}

func documents(states state.Store) *delegated.Documents {
	return &delegated.Documents{Entity: "agent.a", MaxPayload: func() int64 { return 1 << 20 }, States: func() state.Store { return states }}
}

// A stored document is read by its reference. Another one, in its place, is refused.
func TestDocumentsThatAreStored(t *testing.T) {
	t.Parallel()
	store := &state.Mem{}
	docs, from := documents(store), []string{"agent.a"}
	c := state.New("agent.a", "task-0001", "")
	c.Doc.Conversation = []aaif.Message{{Role: "user", Content: "hi"}}
	run := state.RunID("agent.a", "handoff 1")
	ref, err := docs.Store(t.Context(), c, run, state.Parent{TaskID: "task-0001"})
	if err != nil || ref.Document != "" || ref.Run != run {
		t.Fatalf("%+v, %v", ref, err)
	}
	got, err := docs.Read(t.Context(), ref, from)
	if err != nil || got.Doc.Conversation[0].Content != "hi" || *got.Mesh.Parent != (state.Parent{Kind: "handoff", Entity: "agent.a", TaskID: "task-0001"}) {
		t.Fatalf("%+v, %v", got, err)
	}
	again, err := docs.Store(t.Context(), state.New("agent.a", "task-0001", ""), run, state.Parent{})
	if err != nil || *again != *ref {
		t.Errorf("stored twice: %+v, %v, was %+v", again, err, ref)
	}

	_, err = docs.Read(t.Context(), ref, []string{"agent.b"})
	wantCode(t, err, envelope.CodeDenied)
	other := *ref
	other.Hash = "sha256:00"
	_, err = docs.Read(t.Context(), &other, from)
	wantCode(t, err, envelope.CodeHashMismatch)
	other.Run = state.RunID("agent.a", "another")
	_, err = docs.Read(t.Context(), &other, from)
	wantCode(t, err, envelope.CodeNotFound)
	other.Run = ""
	_, err = docs.Read(t.Context(), &other, from)
	wantCode(t, err, envelope.CodeRequires)

	// The record of another run of the agent is no document that goes along.
	secret := state.New("agent.a", "task-0009", "agent-a")
	data, err := state.Codec{}.Encode(secret)
	if err != nil {
		t.Fatal(err)
	}
	posing := delegated.StateRef{Entity: "agent.a", Run: secret.Doc.RunID, Document: string(data)}
	posing.Hash = hash(data)
	_, err = docs.Read(t.Context(), &posing, from)
	wantCode(t, err, envelope.CodeDenied)

	// A document that this worker cannot read.
	ring, err := state.NewKeyring(state.Key{Secret: bytes.Repeat([]byte{7}, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	sealed := documents(store)
	sealed.Codec.Seal = ring
	ref, err = sealed.Store(t.Context(), c, state.RunID("agent.a", "handoff 2"), state.Parent{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = docs.Read(t.Context(), ref, from)
	wantCode(t, err, envelope.CodeDenied)
	if _, err = sealed.Read(t.Context(), ref, from); err != nil {
		t.Error(err)
	}
}

// Without a store, or where the receiver may not read it, the task has the document, up to a limit.
func TestDocumentsThatTheTaskHas(t *testing.T) {
	t.Parallel()
	fenced := documents(&state.Mem{})
	fenced.Fenced = true
	for what, docs := range map[string]*delegated.Documents{"no store": documents(nil), "fenced": fenced} {
		c := state.New("agent.a", "task-0001", "")
		ref, err := docs.Store(t.Context(), c, state.RunID("agent.a", "handoff 1"), state.Parent{})
		if err != nil || ref.Document == "" {
			t.Errorf("%s: %+v, %v", what, ref, err)
			continue
		}
		if _, err := documents(nil).Read(t.Context(), ref, []string{"agent.a"}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		docs.MaxPayload = func() int64 { return 100 }
		ref, err = docs.Store(t.Context(), c, state.RunID("agent.a", "handoff 2"), state.Parent{})
		if what == "no store" {
			wantCode(t, err, envelope.CodeTooLarge)
		} else if err != nil || ref.Document != "" {
			t.Errorf("%s: %+v, %v", what, ref, err)
		}
	}
	_, err := documents(nil).Read(t.Context(), &delegated.StateRef{Entity: "agent.a"}, []string{"agent.a"})
	wantCode(t, err, envelope.CodeUnavailable)
}

func TestReferencesThatAreRefused(t *testing.T) {
	t.Parallel()
	if ref, err := delegated.ReadRef(nil); ref != nil || err != nil || ref.Check() != nil {
		t.Errorf("%v, %v", ref, err)
	}
	_, err := delegated.ReadRef(json.RawMessage(`"x"`))
	wantCode(t, err, envelope.CodeRequires)
	ref, err := delegated.ReadRef(wire.MustJSON(delegated.StateRef{User: strings.Repeat("u", wire.MaxName+1)}))
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, ref.Check(), envelope.CodeRequires)
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

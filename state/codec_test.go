package state_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

var start = time.Date(2026, 11, 20, 10, 0, 0, 123456000, time.UTC)

// full returns a checkpoint in which every field is set.
func full() *state.Checkpoint {
	c := state.New("agent.reviewer", "01JD0000000000000000000000", "")
	d := &c.Doc
	d.Comment = "a comment"
	d.AgentVersion = "1.2.3"
	d.Status = aaif.RunAwaitingApproval
	d.Iteration = "2"
	d.PipelinePosition = &aaif.PipelinePosition{CurrentStep: "b", CompletedSteps: []string{"a"}, RemainingSteps: []string{"c", "d"}, CurrentSubagent: "sub", ParallelSlot: "0"}
	d.Conversation = []aaif.Message{
		{Role: aaif.MessageSystem, Content: "Be brief."},
		{Role: aaif.MessageUser, Content: "Größe?\n\"quoted\" \\ \u2028 \U0001F600", TokenCount: "7", Timestamp: "2026-11-20T10:00:00Z"},
		{Role: aaif.MessageAssistant, Content: ""},
		{Role: aaif.MessageTool, Content: `{"big":12345678901234567890}`, ToolCallID: "call_1", ToolName: "look"},
	}
	d.MemorySnapshot = []aaif.MemoryItem{{Scope: aaif.ScopeSession, Key: "k", Content: "v", Backend: "redis", CapturedAt: "2026-11-20T10:00:00Z", TTLRemainingSeconds: "60"}}
	d.PendingToolCalls = []aaif.PendingToolCall{{ID: "call_2", ToolName: "send", Arguments: []byte(`{"to":"x","n":1}`), Status: aaif.ToolCallInFlight, SubmittedAt: "2026-11-20T10:00:00Z", CallbackURL: "https://example.com/cb"}}
	d.SubagentStates = []aaif.SubagentState{{Alias: "s", AgentID: "a", StateID: "b", Status: aaif.SubagentRunning, Output: []byte(`[1,2.5,"x"]`)}}
	d.Variables = []byte(`{"b":1,"a":{"z":1e2,"y":null}}`)
	d.ApprovalRequest = &aaif.ApprovalRequest{TriggerDescription: "t", PendingAction: []byte(`{"tool_name":"send"}`), RequestedAt: "2026-11-20T10:00:00Z", TimeoutAt: "2026-11-20T11:00:00Z", ApproverHint: "ops"}
	d.Error = &aaif.RunError{Code: "E_TOOL", Message: "m", Step: "s", OccurredAt: "2026-11-20T10:00:00Z", RetriesRemaining: "1", StackTrace: "main.go:1"}
	d.Provenance = &aaif.StateProvenance{SourcePlatform: "aeemesh", SourceRuntimeVersion: "1.0.0", CapturedBy: "ops", TargetPlatform: "other", MigrationToken: "tok"}
	d.Extensions = jsontext.Value(`{"x-zeta":{"k":[1]},"x-a":"foreign"}`)
	c.Mesh = state.Mesh{
		Format: 2, Entity: "agent.reviewer", TaskID: "01JD0000000000000000000000", Epoch: 3, Owner: "host-1",
		Step: state.Step{Kind: state.StepReceipt, Name: "look", Detail: "ok", MS: 12}, Work: 99, Redelivered: 2,
		Task: []byte(`{"v": "1", "n": 1.0, "big": 12345678901234567890}`), KeyID: "k1",
		StoredAt: start, StartedAt: start.Add(time.Second), Ran: 1500 * time.Millisecond,
		Claims: 1, Attempt: 2, Stream: 17, Told: "half a sen", Trail: []string{"b8f2da22-0d2a"},
		Notes: []state.Note{
			{Message: 2, Calls: []model.ToolCall{{ID: "call_1", Name: "look", Arguments: []byte(`{"id": 12345678901234567890}`)}, {ID: "call_2", Name: "send", Arguments: []byte(`"not an object"`)}}, Provider: []byte(`{"some": {"signature": 1.0}}`)},
			{Message: 3, IsError: true},
		},
		Effects: []state.Effect{{
			ID: "call_1", Tool: "look", Key: "key", ArgsHash: "sha256:00", Status: state.EffectDone, Epoch: 3, Tries: 2,
			At: start, DoneAt: start.Add(time.Second), Result: []byte(`{"big":12345678901234567890}`), Error: "e", SettledBy: "human.ann",
		}},
		Calls:    []state.Call{{Key: "step/review", ID: "01JD0000000000000000000001", To: "agent.y", Live: true, Job: true, Past: true, At: start, Sent: []string{"00112233445566778899aabbccddeeff"}}},
		Commands: []string{"c1", "c2"}, Steering: []state.Steer{{ID: "c3", From: "human.ann", Text: "hurry", At: start}},
		Noted:   []state.Noted{{ID: "c4", Intent: "mesh.task.steer", From: "human.ann", KeyID: "k2", Reason: "r", Text: "now", Caller: "agent.lead", At: start}},
		Due:     start.Add(2 * time.Hour),
		Pending: "paused", Dead: "exhausted", CBOR: true, Priority: "high", Deadline: start.Add(time.Hour),
		Turns: 11,
		Usage: state.Usage{InputTokens: 1, OutputTokens: 2, ModelCalls: 3, ToolCalls: 4, CostNanoUSD: 5, UnpricedCalls: 6, EstimatedTokens: 9, EstimatedNanoUSD: 10, TreeTokens: 7, TreeCostNanoUSD: 8},
		Loop:  []byte(`{"phase":"tools"}`), Reply: []byte(`{"v":"1"}`),
		Plan:   []byte(`{"pattern":"pipeline"}`),
		Waits:  []state.Wait{{Entity: "human.ada", TaskID: "01JD0000000000000000000009", Key: "step/sign", Asked: start, Until: start.Add(time.Minute), Void: true, Answered: true, Later: true, Schema: `{"type":"object"}`}},
		WakeAt: start.Add(time.Minute),
		Parent: &state.Parent{Kind: "fork", Entity: "agent.reviewer", Run: "r", TaskID: "t", StateID: "s", Revision: 4, Platform: "p"},
		Handed: &state.Handed{To: "agent.next", TaskID: "task-2", Task: json.RawMessage(`{"v":"1","id":"task-2"}`), Reason: "it is theirs"},
		Migration: &state.Migration{
			ID: "m", Phase: state.PhaseStaged, Status: aaif.RunPaused, Issuer: "agent.x", Source: "a", Target: "b",
			To: "https://b", By: "human.ada", AmidCalls: true, Key: "k", Since: start, Detail: "d",
		},
		More: jsontext.Value(`{"a_future":{"x":1},"zz":[]}`),
	}
	return c
}

func fixed(k state.Codec) state.Codec {
	k.Now = func() time.Time { return start }
	return k
}

// same fails the test unless both checkpoints are equal, apart from what Encode
// remembers.
func same(t *testing.T, got, want *state.Checkpoint) {
	t.Helper()
	if !reflect.DeepEqual(got.Doc, want.Doc) {
		t.Errorf("document\n%+v\nwant\n%+v", got.Doc, want.Doc)
	}
	if !reflect.DeepEqual(got.Mesh, want.Mesh) {
		t.Errorf("mesh\n%+v\nwant\n%+v", got.Mesh, want.Mesh)
	}
}

// canonicalRaw returns the checkpoint with the raw values of the document in canonical
// form, the form in which they are decoded. Those of the mesh keep their bytes.
func canonicalRaw(t *testing.T, c *state.Checkpoint) *state.Checkpoint {
	t.Helper()
	c = c.Clone()
	put := func(raw *json.RawMessage) {
		b, err := envelope.Canonical(*raw)
		if err != nil {
			t.Fatal(err)
		}
		*raw = b
	}
	put(&c.Doc.Variables)
	put(&c.Doc.PendingToolCalls[0].Arguments)
	ext := json.RawMessage(c.Doc.Extensions)
	put(&ext)
	c.Doc.Extensions = jsontext.Value(ext)
	return c
}

func TestEncodeDecode(t *testing.T) {
	t.Parallel()
	ring, err := state.NewKeyring(state.Key{Secret: bytes.Repeat([]byte{7}, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]state.Codec{
		"json":        {},
		"cbor":        {Encoding: aaif.CBOR},
		"sealed json": {Seal: ring},
		"sealed cbor": {Encoding: aaif.CBOR, Seal: ring},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := fixed(k)
			c := full()
			data, err := k.Encode(c)
			if err != nil {
				t.Fatal(err)
			}
			got, err := k.Decode(data)
			if err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
			same(t, got, canonicalRaw(t, c))
			if c.Doc.StateID == "" || c.Doc.CheckpointAt != "2026-11-20T10:00:00.123456Z" || len(c.Doc.Provenance.Checksum) != 64 {
				t.Errorf("the checkpoint was not captured: %+v", c.Doc)
			}
			h, err := state.ReadHeader(data)
			if err != nil {
				t.Fatal(err)
			}
			want := state.Header{
				StateID: c.Doc.StateID, Agent: c.Doc.AgentID, Run: c.Doc.RunID, Status: c.Doc.Status, Iteration: 2, At: start,
				Format: 2, Entity: "agent.reviewer", TaskID: c.Mesh.TaskID, Epoch: 3, Owner: "host-1", Step: state.StepReceipt, Work: 99,
			}
			want.Waits = slices.Clone(c.Mesh.Waits)
			want.Waits[0].Schema = ""
			if k.Seal != nil {
				want.Sealed, want.Waits = ring.IDs()[0], nil
			}
			if !reflect.DeepEqual(h, want) {
				t.Errorf("header %+v, want %+v", h, want)
			}
		})
	}
}

func TestTheTextIsCanonical(t *testing.T) {
	t.Parallel()
	c := full()
	for range 3 { // the second and third use what the first remembered
		data, err := state.Codec{}.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		canonical, err := envelope.Canonical(data)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, canonical) {
			t.Errorf("wrote\n%s\ncanonical\n%s", data, canonical)
		}
		c.Doc.Conversation = append(c.Doc.Conversation, aaif.Message{Role: aaif.MessageUser, Content: strings.Repeat("more ", 300)})
	}
}

// Members that a newer release has added to x-aeemesh are preserved, in the order of
// their names.
func TestUnknownMembersAreSorted(t *testing.T) {
	t.Parallel()
	c := full()
	c.Mesh.More = nil
	data, err := state.Codec{}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Mesh map[string]any `json:"x-aeemesh"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	more := map[string]any{"": "first", "\U0001F600": "last", "\uFFFF": "behind it in UTF-16"}
	for name := range doc.Mesh {
		more[name+"0"], more["0"+name] = name, []int{1}
	}
	if c.Mesh.More, err = json.Marshal(more); err != nil {
		t.Fatal(err)
	}
	if data, err = (state.Codec{}).Encode(c); err != nil {
		t.Fatal(err)
	}
	if canonical, err := envelope.Canonical(data); err != nil || !bytes.Equal(data, canonical) {
		t.Errorf("%v, wrote\n%s\ncanonical\n%s", err, data, canonical)
	}
	got, err := state.Codec{}.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	want, err := envelope.Canonical(json.RawMessage(c.Mesh.More))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Mesh.More, want) {
		t.Errorf("came back as\n%s\nwant\n%s", got.Mesh.More, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	c := full()
	data, err := state.Codec{}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) []byte {
		out := bytes.Replace(data, []byte(old), []byte(new), 1)
		if bytes.Equal(out, data) {
			t.Fatalf("%s is not there", old)
		}
		return out
	}
	for name, tt := range map[string]struct {
		data []byte
		want error
	}{
		"nothing":         {nil, state.ErrInvalid},
		"text behind":     {append(bytes.Clone(data), '1'), state.ErrInvalid},
		"a cut":           {data[:len(data)-1], state.ErrInvalid},
		"another content": {replace("Be brief", "Be longg"), state.ErrChecksum},
		"no checksum":     {replace(`"checksum":"`+c.Doc.Provenance.Checksum+`",`, ""), state.ErrChecksum},
		"a duplicate":     {replace(`"status":`, `"status":"running","status":`), state.ErrInvalid},
		"unknown member":  {replace(`"status":`, `"statue":1,"status":`), state.ErrInvalid},
		"newer":           {replace(`"format":2`, `"format":3`), state.ErrNewer},
		"no entity":       {replace(`"entity":"`+c.Mesh.Entity+`"`, `"entity":""`), state.ErrInvalid},
	} {
		if _, err := (state.Codec{}).Decode(tt.data); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// The checkpoint of the other tests sets every field of Mesh, so that no field can be
// forgotten in the encoding.
func TestFullIsFull(t *testing.T) {
	t.Parallel()
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		if v.IsZero() {
			t.Errorf("%s is not set", path)
			return
		}
		switch v.Kind() {
		case reflect.Pointer:
			walk(path, v.Elem())
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[time.Time]() {
				return
			}
			for i := range v.NumField() {
				walk(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
		case reflect.Slice:
			if v.Len() > 0 && v.Index(0).Kind() == reflect.Struct {
				for i := range v.Type().Elem().NumField() { // each field in some item
					if !slices.ContainsFunc(items(v), func(item reflect.Value) bool { return !item.Field(i).IsZero() }) {
						t.Errorf("%s[].%s is set in no item", path, v.Type().Elem().Field(i).Name)
					}
				}
			}
		}
	}
	c := full()
	walk("Mesh", reflect.ValueOf(c.Mesh))
	c.Doc.StateID, c.Doc.CheckpointAt, c.Doc.Provenance.Checksum = "-", "-", "-"
	walk("Doc", reflect.ValueOf(c.Doc))
}

func items(v reflect.Value) []reflect.Value {
	var all []reflect.Value
	for i := range v.Len() {
		all = append(all, v.Index(i))
	}
	return all
}

// What Encode remembers is never stale: whatever is changed, and whichever clone is
// encoded, the text is that of a checkpoint that was never encoded before.
func TestTheMemoryOfEncodeIsNeverStale(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"a", "b", strings.Repeat("long ", 200), "\"\\\n"})
		raw := rapid.SampledFrom([]string{`{"b":1,"a":2}`, `{"a":"` + strings.Repeat("x", 600) + `"}`, `{"a":"` + strings.Repeat("y", 600) + `"}`, `{"z":"` + strings.Repeat("x", 600) + `", "a": 1.0}`})
		clones := []*state.Checkpoint{state.New("agent.a", "t", "")}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			c := clones[rapid.IntRange(0, len(clones)-1).Draw(t, "clone")]
			at := rapid.IntRange(0, 5).Draw(t, "at")
			switch rapid.IntRange(0, 8).Draw(t, "what") {
			case 0, 1:
				c.Append(model.User(text.Draw(t, "text")), start, at)
			case 2:
				c.Truncate(min(at, len(c.Doc.Conversation)))
			case 3:
				if at < len(c.Doc.Conversation) {
					c.Doc.Conversation[at].Content = text.Draw(t, "text")
				}
			case 4:
				c.Doc.Variables = []byte(raw.Draw(t, "raw"))
			case 5:
				c.Mesh.Loop = []byte(raw.Draw(t, "raw"))
			case 6:
				c.Doc.MemorySnapshot = append(c.Doc.MemorySnapshot, aaif.MemoryItem{Scope: aaif.ScopeTask, Key: "k", Content: text.Draw(t, "text")})
			case 7:
				clones = append(clones, c.Clone())
			case 8:
				if _, err := (state.Codec{}).Encode(c); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, c := range clones {
			c.Doc.StateID, c.Doc.CheckpointAt = "s", "c"
			got, err := state.Codec{}.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			fresh := state.Checkpoint{Doc: c.Doc, Mesh: c.Mesh}
			want, err := state.Codec{}.Marshal(&fresh)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("wrote\n%s\nwant\n%s", got, want)
			}
		}
	})
}

// Clones can be encoded concurrently; the race detector finds nothing.
func TestClonesAreIndependent(t *testing.T) {
	t.Parallel()
	c := full()
	data, err := state.Codec{}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	want, err := state.Codec{}.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		d := c.Clone()
		wg.Go(func() {
			for range 20 {
				d.Append(model.User(strings.Repeat(strconv.Itoa(i), 100)), start, 0)
				d.Doc.PipelinePosition.CompletedSteps[0] = "changed"
				d.Doc.Error.Code, d.Doc.Provenance.CapturedBy, d.Doc.ApprovalRequest.ApproverHint = "x", "x", "x"
				d.Mesh.Effects[0].Status, d.Mesh.Notes[0].Calls[0].Name, d.Mesh.Commands[0] = "x", "x", "x"
				d.Mesh.Effects[0].Status, d.Mesh.Parent.Run, d.Mesh.Migration.ID, d.Mesh.Handed.To = state.EffectDone, "x", "x", "x"
				d.Mesh.Steering[0].Text, d.Mesh.Noted[0].ID = "x", "x"
				d.Doc.MemorySnapshot[0].Key, d.Doc.PendingToolCalls[0].ID, d.Doc.SubagentStates[0].Alias = "x", "x", "x"
				if _, err := (state.Codec{}).Encode(d); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	same(t, canonicalRaw(t, c), want)
}

// A document has the format of the oldest release that can read it: releases without
// teams can still read the run of a single agent.
func TestFormatIsTheOldestPossible(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		plan  json.RawMessage
		calls []state.Call
		want  int
	}{{nil, nil, 1}, {json.RawMessage(`{}`), nil, 2}, {nil, []state.Call{{Key: "k", ID: "i", To: "agent.y"}}, 2}} {
		c := state.New("agent.x", "01JFB2R1JZKQ9V3K8W8Y9W1F2A", "")
		c.Mesh.Plan, c.Mesh.Calls = tt.plan, tt.calls
		data, err := state.Codec{}.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		h, err := state.ReadHeader(data)
		if err != nil || h.Format != tt.want {
			t.Errorf("plan %s: format %d, %v, want %d", tt.plan, h.Format, err, tt.want)
		}
	}
}

func TestEncodeInUsesTheMemoryThatItIsGiven(t *testing.T) {
	t.Parallel()
	ring, err := state.NewKeyring(state.Key{Secret: make([]byte, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	for name, codec := range map[string]state.Codec{"json": {}, "sealed": {Seal: ring}, "cbor": {Encoding: aaif.CBOR}} {
		var c *state.Checkpoint
		buf := bytes.Repeat([]byte("?"), 16<<10)
		for _, size := range []int{8 << 10, 1 << 10, 12 << 10} {
			c = grown(t, size)
			data, err := codec.EncodeIn(buf, c)
			if err != nil {
				t.Fatal(err)
			}
			if name == "json" && &data[0] != &buf[0] {
				t.Errorf("%d bytes are in memory of their own", len(data))
			}
			got, err := codec.Decode(data)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want, err := state.Codec{}.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := (state.Codec{}).Marshal(got); err != nil || !bytes.Equal(again, want) {
				t.Errorf("%s: another document came out: %v", name, err)
			}
		}
		if data, err := codec.EncodeIn(make([]byte, 10), c); err != nil || len(data) < 1<<10 {
			t.Errorf("%s, in too little memory: %d bytes, %v", name, len(data), err)
		}
	}
}

// A duration is stored in whole milliseconds: less than one is left out, as zero is.
func TestADurationBelowAMillisecondIsLeftOut(t *testing.T) {
	t.Parallel()
	for ran, want := range map[time.Duration]bool{0: false, time.Millisecond - 1: false, time.Millisecond: true} {
		text, err := json.Marshal(state.Mesh{Entity: "agent.x", Ran: ran})
		if err != nil || bytes.Contains(text, []byte(`"ran_ms":`)) != want {
			t.Errorf("%v: %v, %s", ran, err, text)
		}
	}
}

package state_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// The files in testdata/checkpoints were written by releases. Every later release must
// decode them and continue from them: they are never rewritten, and a format that
// replaces this one gets a folder of its own beside it. -fixtures writes the missing
// ones.
var writeFixtures = flag.Bool("fixtures", false, "write the checkpoints that testdata/checkpoints lacks")

const fixtures = "testdata/checkpoints/v1"

// fixtureKey seals the sealed ones.
var fixtureKey = state.Key{ID: "fixtures", Secret: []byte("a key for fixtures, of 32 bytes!")}

const fixtureTask = `{"v":"1","id":"01JDC0FFEE0000000000000000","ts":"2026-11-20T10:00:00.000Z","type":"task","from":"human.ann","to":"agent.reviewer","intent":"chat.ask","corr":"01JDC0FFEE0000000000000000","reply_to":null,"trace":null,"priority":"normal","requires":{"stream":true,"timeout_ms":60000},"payload":{"text":"Who owns invoice 7?","n":12345678901234567890},"sig":null}`

// A fixture says how a file was made, and what every release must read in it.
type fixture struct {
	make func() *state.Checkpoint // how this release would write it; nil: made by hand

	status    aaif.RunStatus
	step      state.StepKind
	epoch     uint64
	roles     string // the roles of the conversation, as first letters
	effects   []state.EffectStatus
	pending   []string // ids of the pending tool calls
	resumable bool
}

func begun() *state.Checkpoint {
	c := state.New("agent.reviewer", "01JDC0FFEE0000000000000000", "")
	c.Doc.StateID, c.Doc.CheckpointAt = "3f1d2c5e-7a90-4b1c-8d21-0c5b6f7e8a90", state.Time(start)
	c.Mesh.Task = []byte(fixtureTask)
	c.Mesh.Epoch, c.Mesh.Owner, c.Mesh.Claims, c.Mesh.Work = 1, "host-1", 1, 42
	c.Mesh.StoredAt, c.Mesh.StartedAt = start, start
	c.Mesh.Priority = "normal"
	c.Mesh.Step = state.Step{Kind: state.StepClaim}
	return c
}

func midTools() *state.Checkpoint {
	c := begun()
	c.Append(model.System("You are a reviewer."), start, 6)
	c.Append(model.User("Who owns invoice 7?"), start, 7)
	args := json.RawMessage(`{"invoice": 12345678901234567890}`)
	c.Append(model.Assistant("Let me look.",
		model.ToolCall{ID: "call_1", Name: "find_invoice", Arguments: args},
		model.ToolCall{ID: "call_2", Name: "send_mail", Arguments: json.RawMessage(`{"to":"ann"}`)},
		model.ToolCall{ID: "call_3", Name: "find_invoice", Arguments: json.RawMessage(`{"invoice":8}`)}), start, 30)
	c.Append(model.Message{Role: model.RoleTool, Content: `{"owner":"Bö"}`, ToolCallID: "call_1", ToolName: "find_invoice"}, start, 6)
	c.Doc.Iteration = "1"
	c.Doc.PendingToolCalls = []aaif.PendingToolCall{
		{ID: "call_2", ToolName: "send_mail", Arguments: []byte(`{"to":"ann"}`), Status: aaif.ToolCallInFlight, SubmittedAt: state.Time(start)},
		{ID: "call_3", ToolName: "find_invoice", Arguments: []byte(`{"invoice":8}`), Status: aaif.ToolCallPending},
	}
	for i, e := range []state.Effect{
		{ID: "call_1", Tool: "find_invoice", ArgsHash: state.ArgsHash(args), Status: state.EffectDone, Epoch: 1, Tries: 1, At: start, DoneAt: start},
		{ID: "call_2", Tool: "send_mail", ArgsHash: state.ArgsHash([]byte(`{"to":"ann"}`)), Status: state.EffectInFlight, Epoch: 1, Tries: 1, At: start},
		{ID: "call_3", Tool: "find_invoice", ArgsHash: state.ArgsHash([]byte(`{"invoice":8}`)), Status: state.EffectPending, Epoch: 1},
	} {
		e.Key = state.EffectKey(c.Doc.RunID, 1, i+1)
		c.Mesh.Effects = append(c.Mesh.Effects, e)
	}
	c.Mesh.Claims, c.Mesh.Stream = 0, 3
	c.Mesh.Usage = state.Usage{InputTokens: 40, OutputTokens: 30, ModelCalls: 1, ToolCalls: 2}
	c.Mesh.Loop = []byte(`{"format":1,"phase":"tools","tools_used":["find_invoice","send_mail"],"task_first":true}`)
	c.Mesh.Step = state.Step{Kind: state.StepReceipt, Name: "find_invoice", MS: 12}
	return c
}

func paused() *state.Checkpoint {
	c := midTools()
	c.Doc.Status, c.Doc.PendingToolCalls = aaif.RunPaused, nil
	c.Truncate(2)
	c.Mesh.Effects = nil
	c.Mesh.Told = "Let me lo"
	c.Mesh.Commands = []string{"01JDC0FFEE0000000000000001"}
	c.Mesh.Steering = []state.Steer{{ID: "01JDC0FFEE0000000000000002", From: "human.ann", Text: "Be quick.", At: start}}
	c.Mesh.Step = state.Step{Kind: state.StepPause, Detail: "human.ann"}
	c.Mesh.Loop = []byte(`{"format":1,"phase":"model","task_first":true}`)
	return c
}

func awaitingSettle() *state.Checkpoint {
	c := midTools()
	c.Doc.Status = aaif.RunAwaitingApproval
	c.Doc.ApprovalRequest = &aaif.ApprovalRequest{
		TriggerDescription: "The outcome of a tool call is unknown.", RequestedAt: state.Time(start),
		PendingAction: []byte(`{"arguments":{"to":"ann"},"tool_name":"send_mail"}`),
	}
	c.Mesh.Effects[1].Status, c.Mesh.Epoch, c.Mesh.Effects[1].Epoch = state.EffectUnknown, 2, 2
	c.Mesh.Step = state.Step{Kind: state.StepPause, Detail: "awaiting approval"}
	return c
}

func completed() *state.Checkpoint {
	c := midTools()
	c.Doc.Status, c.Doc.PendingToolCalls = aaif.RunCompleted, nil
	for i := range c.Mesh.Effects {
		c.Mesh.Effects[i].Status = state.EffectDone
	}
	c.Append(model.Assistant("Bö does."), start, 3)
	c.Mesh.Reply = []byte(`{"v":"1","id":"01JDC0FFEE0000000000000009","ts":"2026-11-20T10:00:01.000Z","type":"result","from":"agent.reviewer","to":"human.ann","intent":"chat.ask","corr":"01JDC0FFEE0000000000000000","reply_to":"01JDC0FFEE0000000000000000","trace":null,"priority":"normal","requires":null,"payload":{"text":"Bö does."},"sig":null}`)
	c.Mesh.Step = state.Step{Kind: state.StepTerminal}
	c.Mesh.Ran = 1234000000
	return c
}

func failed() *state.Checkpoint {
	c := begun()
	c.Doc.Status = aaif.RunFailed
	c.Doc.Error = &aaif.RunError{Code: "E_MODEL", Message: "the model's provider refused the request", Step: "model", OccurredAt: state.Time(start), RetriesRemaining: "0"}
	c.Mesh.Attempt, c.Mesh.Dead = 3, "exhausted"
	c.Mesh.Reply = []byte(`{"v":"1","type":"error"}`)
	c.Mesh.Step = state.Step{Kind: state.StepTerminal, Detail: "E_MODEL"}
	return c
}

// midTeam returns the run of a pipeline of three agents between its steps: format 2, as
// teams write it.
func midTeam() *state.Checkpoint {
	c := begun()
	c.Doc.PipelinePosition = &aaif.PipelinePosition{CurrentStep: "write", CompletedSteps: []string{"find"}, RemainingSteps: []string{"write", "human.ann"}, CurrentSubagent: "write"}
	c.Doc.SubagentStates = []aaif.SubagentState{{Alias: "find", AgentID: state.AgentID("agent.finder"), Status: aaif.SubagentCompleted, Output: []byte(`{"text":"tides"}`)}}
	c.Mesh.Plan = []byte(`{"format":1,"pattern":"pipeline","steps":["find","write","human.ann"],"outcomes":[{"slot":0,"alias":"find","entity":"agent.finder","task_id":"01JDC0FFEE1111111111111111","durable":true,"began":"2026-11-20T10:00:00Z","ms":12.5,"tries":1,"usage":{"input_tokens":3,"output_tokens":2}}],"scope":"01JDC0FFEE2222222222222222"}`)
	c.Mesh.Calls = []state.Call{{Key: "step/1", ID: "01JDC0FFEE3333333333333333", To: "agent.writer", At: start}}
	c.Mesh.Claims = 0
	c.Mesh.Step = state.Step{Kind: state.StepTeam, Name: "find", Detail: "agent.finder", MS: 12}
	return c
}

// waitingTeam returns the same team while it waits for a person in its last step.
func waitingTeam() *state.Checkpoint {
	c := midTeam()
	c.Doc.Status = aaif.RunAwaitingApproval
	c.Doc.ApprovalRequest = &aaif.ApprovalRequest{TriggerDescription: "The run waits for human.ann.", RequestedAt: state.Time(start)}
	c.Mesh.Calls = nil
	c.Mesh.Waits = []state.Wait{{Entity: "human.ann", TaskID: "01JDC0FFEE4444444444444444", Key: "step/2", Asked: start, Until: start.Add(time.Hour)}}
	c.Mesh.Step = state.Step{Kind: state.StepPause, Detail: "for human.ann"}
	return c
}

func everything() *state.Checkpoint {
	c := full()
	c.Doc.StateID, c.Doc.CheckpointAt = "3f1d2c5e-7a90-4b1c-8d21-0c5b6f7e8a90", state.Time(start)
	return c
}

var done = []state.EffectStatus{state.EffectDone, state.EffectDone, state.EffectDone}

var compatible = map[string]fixture{
	"claimed.json":         {begun, aaif.RunRunning, state.StepClaim, 1, "", nil, nil, true},
	"mid-tools.json":       {midTools, aaif.RunRunning, state.StepReceipt, 1, "suat", []state.EffectStatus{"done", "in_flight", "pending"}, []string{"call_2", "call_3"}, true},
	"mid-tools.cbor":       {midTools, aaif.RunRunning, state.StepReceipt, 1, "suat", []state.EffectStatus{"done", "in_flight", "pending"}, []string{"call_2", "call_3"}, true},
	"paused.json":          {paused, aaif.RunPaused, state.StepPause, 1, "su", nil, nil, true},
	"awaiting-settle.json": {awaitingSettle, aaif.RunAwaitingApproval, state.StepPause, 2, "suat", []state.EffectStatus{"done", "unknown", "pending"}, []string{"call_2", "call_3"}, true},
	"completed.json":       {completed, aaif.RunCompleted, state.StepTerminal, 1, "suata", done, nil, false},
	"completed.cbor":       {completed, aaif.RunCompleted, state.StepTerminal, 1, "suata", done, nil, false},
	"failed.json":          {failed, aaif.RunFailed, state.StepTerminal, 1, "", nil, nil, false},
	"everything.json":      {everything, aaif.RunAwaitingApproval, state.StepReceipt, 3, "suat", []state.EffectStatus{"done"}, []string{"call_2"}, true},
	"sealed.json":          {midTools, aaif.RunRunning, state.StepReceipt, 1, "suat", []state.EffectStatus{"done", "in_flight", "pending"}, []string{"call_2", "call_3"}, true},
	"sealed.cbor":          {midTools, aaif.RunRunning, state.StepReceipt, 1, "suat", []state.EffectStatus{"done", "in_flight", "pending"}, []string{"call_2", "call_3"}, true},
	"team.json":            {midTeam, aaif.RunRunning, state.StepTeam, 1, "", nil, nil, true},
	"team-waiting.json":    {waitingTeam, aaif.RunAwaitingApproval, state.StepPause, 1, "", nil, nil, true},
	"foreign.json":         {nil, aaif.RunPaused, "", 0, "suat", nil, []string{"toolu_2"}, true},
	"foreign.cbor":         {nil, aaif.RunPaused, "", 0, "suat", nil, []string{"toolu_2"}, true},
}

// fixtureCodec returns the codec for a file, by the file's name.
func fixtureCodec(t *testing.T, name string) state.Codec {
	t.Helper()
	k := fixed(state.Codec{})
	if strings.HasSuffix(name, ".cbor") {
		k.Encoding = aaif.CBOR
	}
	if strings.HasPrefix(name, "sealed") {
		ring, err := state.NewKeyring(fixtureKey)
		if err != nil {
			t.Fatal(err)
		}
		k.Seal = ring
	}
	return k
}

func TestFixturesAreComplete(t *testing.T) {
	files, err := os.ReadDir(fixtures)
	if err != nil && !*writeFixtures {
		t.Fatal(err)
	}
	var have []string
	for _, f := range files {
		if have = append(have, f.Name()); compatible[f.Name()].status == "" {
			t.Errorf("no test knows %s", f.Name())
		}
	}
	for name, f := range compatible {
		if slices.Contains(have, name) {
			continue
		}
		if !*writeFixtures {
			t.Errorf("%s is missing; fixtures are kept for ever", name)
			continue
		}
		k := fixtureCodec(t, name)
		var data []byte
		switch {
		case f.make != nil:
			if data, err = k.Marshal(f.make()); err != nil {
				t.Fatal(err)
			}
		case name == "foreign.json":
			data = foreign(t)
		default:
			if data, err = aaif.JSONToCBOR(foreign(t), 64); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(fixtures, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(fixtures, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// foreign returns a document as another platform might write it: members in another
// order, white space, members of its own, and no x-aeemesh.
func foreign(t *testing.T) []byte {
	t.Helper()
	const text = `{
  "x-sc-schema": "agent-state.schema.json",
  "sc_standard": "SC-006", "sc_version": "3.4.0",
  "state_id": "9b2f6c1e-51d0-4a6c-9d53-7f1f0a3c1b22",
  "agent_id": "a0000002-0000-4000-8000-000000000002",
  "run_id": "7f0e3b60-1111-4222-8333-444455556666",
  "checkpoint_at": "2026-06-10T12:00:00Z",
  "status": "paused", "iteration": 1,
  "conversation": [
    {"role": "system", "content": "You are helpful."},
    {"role": "user", "content": "Caf\u00e9?", "token_count": 2},
    {"role": "assistant", "content": "", "timestamp": "2026-06-10T11:59:59Z"},
    {"role": "tool", "content": "{\"ok\": true}", "tool_call_id": "toolu_1", "tool_name": "look"}
  ],
  "memory_snapshot": [{"scope": "session", "key": "k", "content": "v", "ttl_remaining_seconds": 1e2}],
  "pending_tool_calls": [{"id": "toolu_2", "tool_name": "send", "arguments": {"n": 1.0}, "status": "awaiting_result", "callback_url": "https://other.example/cb"}],
  "variables": {"b": 1.50, "a": null},
  "x-other": {"thread": "t-1", "weights": [1.0, 2e3]},
  "provenance": {"source_platform": "Other", "checksum": "CHECKSUM"}
}
`
	bare, err := envelope.Canonical([]byte(strings.Replace(text, `, "checksum": "CHECKSUM"`, "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(bare)
	return []byte(strings.Replace(text, "CHECKSUM", strings.ToUpper(hex.EncodeToString(sum[:])), 1))
}

// TestOlderCheckpointsResume decodes the files that releases have written and continues
// from them: it claims the run, appends a message, and writes the next checkpoint.
func TestOlderCheckpointsResume(t *testing.T) {
	t.Parallel()
	for name, want := range compatible {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join(fixtures, name))
			if err != nil {
				t.Fatal(err)
			}
			k := fixtureCodec(t, name)
			c, err := k.Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			var roles strings.Builder
			for _, m := range c.Messages() {
				roles.WriteByte(m.Role[0])
			}
			var effects []state.EffectStatus
			for _, e := range c.Mesh.Effects {
				effects = append(effects, e.Status)
			}
			var pending []string
			for _, p := range c.Doc.PendingToolCalls {
				pending = append(pending, p.ID)
			}
			if c.Doc.Status != want.status || c.Mesh.Step.Kind != want.step || c.Mesh.Epoch != want.epoch || roles.String() != want.roles ||
				!slices.Equal(effects, want.effects) || !slices.Equal(pending, want.pending) || c.Terminal() == want.resumable {
				t.Errorf("status %s, step %s, epoch %d, roles %s, effects %v, pending %v, terminal %v; want %+v",
					c.Doc.Status, c.Mesh.Step.Kind, c.Mesh.Epoch, roles.String(), effects, pending, c.Terminal(), want)
			}
			h, err := state.ReadHeader(data)
			if err != nil || h.Run != c.Doc.RunID || h.Status != want.status || h.Epoch != want.epoch || h.Step != want.step {
				t.Errorf("header %+v, %v", h, err)
			}
			if !strings.HasPrefix(name, "foreign") && name != "everything.json" {
				if c.Doc.RunID != "e3e7a7c2-bf6c-5a2b-86ec-3b6ce2354603" || string(c.Mesh.Task) != fixtureTask {
					t.Errorf("run %s of task %s", c.Doc.RunID, c.Mesh.Task)
				}
			}
			if !want.resumable {
				if len(c.Mesh.Reply) == 0 {
					t.Error("an ended run has lost its reply")
				}
				return
			}
			resume(t, k, c)
		})
	}
}

func resume(t *testing.T, k state.Codec, c *state.Checkpoint) {
	t.Helper()
	if c.Mesh.Entity == "" { // the import gives the run an entity of this mesh
		c.Mesh.Entity, c.Mesh.TaskID = "agent.reviewer", "imported"
	}
	next := c.Clone()
	next.Mesh.Epoch++
	next.Mesh.Owner, next.Mesh.Step = "host-9", state.Step{Kind: state.StepClaim}
	next.Doc.Status = aaif.RunRunning
	next.Append(model.User("Go on."), start, 2)
	k.Now = c.At // no memory has aged
	data, err := k.Encode(next)
	if err != nil {
		t.Fatalf("the next checkpoint: %v", err)
	}
	again, err := k.Decode(data)
	if err != nil {
		t.Fatalf("the next checkpoint: %v", err)
	}
	changes, err := state.Diff(c, again)
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range changes {
		switch {
		case ch.Path == "/status", ch.Path == "/x-aeemesh/epoch", ch.Path == "/x-aeemesh/owner", strings.HasPrefix(ch.Path, "/x-aeemesh/step"):
		case strings.HasPrefix(ch.Path, "/conversation") && ch.From == nil:
		default:
			t.Errorf("going on has changed %v", ch)
		}
	}
	var store state.Mem
	if _, err := store.Put(t.Context(), again.ID(), 0, data); err != nil {
		t.Error(err)
	}
}

// This release encodes the fixtures of its format to the bytes of the files. A difference
// is a change of the wire format, and may require a new format.
func TestFixturesEqualTheEncoding(t *testing.T) {
	t.Parallel()
	for name, f := range compatible {
		// Each sealed file has its own nonce. The fixture with every field changes
		// whenever a field is added, and older files lack that field.
		if f.make == nil || strings.HasPrefix(name, "sealed") || name == "everything.json" {
			continue
		}
		want, err := os.ReadFile(filepath.Join(fixtures, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := fixtureCodec(t, name).Marshal(f.make())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: written\n%s\nwas\n%s", name, got, want)
		}
	}
}

func TestForeignDocumentsSurvive(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"foreign.json", "foreign.cbor"} {
		data, err := os.ReadFile(filepath.Join(fixtures, name))
		if err != nil {
			t.Fatal(err)
		}
		c, err := state.Codec{}.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		out, err := state.Codec{}.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		tree := func(data []byte) map[string]any {
			var v map[string]any
			if err := json.Unmarshal(data, &v); err != nil {
				t.Fatal(err)
			}
			delete(v["provenance"].(map[string]any), "checksum") // its own test covers the checksum
			return v
		}
		got, _ := json.Marshal(tree(out))
		want, _ := json.Marshal(tree(foreign(t)))
		if string(got) != string(want) {
			t.Errorf("%s came back as\n%s\nwant\n%s", name, got, want)
		}
		if strings.Contains(string(out), state.Extension) {
			t.Errorf("%s has %s now", name, state.Extension)
		}
		bad := bytes.Replace(data, []byte("You are helpful."), []byte("You are harmful."), 1)
		if _, err := (state.Codec{}).Decode(bad); !errors.Is(err, state.ErrChecksum) {
			t.Errorf("altered %s: %v, want %v", name, err, state.ErrChecksum)
		}
	}
}

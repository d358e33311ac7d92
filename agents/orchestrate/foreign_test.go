package orchestrate_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate/progress"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// crew are members that record their tasks, and answer with their names.
type crew struct {
	mu    sync.Mutex
	asked []string // "name payload"
}

func (c *crew) Handle(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
	name := strings.TrimPrefix(task.Envelope.To, "agent.")
	c.mu.Lock()
	defer c.mu.Unlock()
	payload := envelope.KeepReferences(task.Envelope.Payload, func(envelope.Reference) bool { return false })
	c.asked = append(c.asked, name+" "+string(payload))
	return json.Marshal(map[string]string{"by": name})
}

// heard returns the recorded tasks, and clears them.
func (c *crew) heard() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.asked)
	out := strings.Join(c.asked, "; ")
	c.asked = nil
	return out
}

// foreign is a state document of a platform that is not a mesh, with the members that a test gives.
func foreign(t *testing.T, entity, members string) *aaif.State {
	t.Helper()
	doc, err := aaif.Parse([]byte(`{"sc_standard":"SC-006","state_id":"`+uuid.NewString()+`","agent_id":"`+state.AgentID(entity)+`","run_id":"`+uuid.NewString()+
		`","checkpoint_at":"2026-03-01T12:00:00Z","status":"paused","conversation":[{"role":"user","content":"make a report"}],"provenance":{"source_platform":"conveyor"}`+members+`}`),
		aaif.Options{Kind: aaif.KindState})
	if err != nil {
		t.Fatal(err)
	}
	return doc.State()
}

const someAgent = `"agent_id":"5b0a8c2e-1111-4111-8111-111111111111"`

// Gap 10: a pipeline, a router or a swarm that another platform began continues
// from its position, with the answers from there; if the position cannot be
// read, it is not started anew.
func TestATeamGoesOnWhereAnotherPlatformLeftIt(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newRig(t).shortLeases()
	members := &crew{}
	r.serve(true, members, "agent.fetch", "agent.sort", "agent.write", "agent.spare")
	const subagents = `"subagents":[{"ref":"agent.fetch","alias":"fetch"},{"ref":"agent.sort","alias":"sort"},{"ref":"agent.write","alias":"write"}]`
	blocks := map[string]string{
		"pipeline": `{"pipeline":["fetch","sort","write"],` + subagents + `}`,
		"twice":    `{"pipeline":["fetch","sort","fetch"],` + subagents + `}`,
		"router":   `{"role":"router",` + subagents + `}`,
		"swarm":    `{"parallel_execution":true,` + subagents + `}`,
	}
	for name, block := range blocks {
		r.serve(true, team(plan(t, block, ""), nil), "agent."+name)
	}
	at := func(position, states string) string {
		out := ""
		if position != "" {
			out += `,"pipeline_position":{` + position + `}`
		}
		if states != "" {
			out += `,"subagent_states":[` + states + `]`
		}
		return out
	}
	said := func(alias, status, rest string) string {
		return `{"alias":"` + alias + `",` + someAgent + `,"status":"` + status + `"` + rest + `}`
	}
	done := func(alias, output string) string { return said(alias, "completed", `,"output":`+output) }
	for name, tt := range map[string]struct {
		team    string
		members string
		asked   string // the members' tasks, sorted
		result  string // "!" and a part of the error
	}{
		"at the second step": {"pipeline",
			at(`"current_step":"sort","completed_steps":["fetch"],"remaining_steps":["write"]`, done("fetch", `{"rows":[1,2]}`)),
			`sort {"rows":[1,2]}; write {"by":"sort"}`, `{"by":"write"}`},
		"at the second step, which is one that remains": {"pipeline",
			at(`"current_step":"sort","completed_steps":["fetch"],"remaining_steps":["sort","write"]`, done("fetch", `{"rows":[1,2]}`)),
			`sort {"rows":[1,2]}; write {"by":"sort"}`, `{"by":"write"}`},
		"at the last step, with the last output alone": {"pipeline",
			at(`"current_step":"write","completed_steps":["fetch","sort"]`, done("sort", `{"rows":[2,1]}`)),
			`write {"rows":[2,1]}`, `{"by":"write"}`},
		"by the refs": {"pipeline",
			at(`"current_step":"agent.sort","completed_steps":["agent.fetch"]`, done("agent.fetch", `{"rows":[]}`)),
			`sort {"rows":[]}; write {"by":"sort"}`, `{"by":"write"}`},
		"with a text": {"pipeline",
			at(`"completed_steps":["fetch"],"current_step":"sort"`, done("fetch", `"two rows"`)),
			`sort {"text":"two rows"}; write {"by":"sort"}`, `{"by":"write"}`},
		"with a list": {"pipeline",
			at(`"completed_steps":["fetch"],"current_step":"sort"`, done("fetch", `[1,2]`)),
			`sort {"text":"[1,2]"}; write {"by":"sort"}`, `{"by":"write"}`},
		"at its end": {"pipeline",
			at(`"completed_steps":["fetch","sort","write"]`, done("write", `{"page":1}`)), ``, `{"page":1}`},
		"at its beginning": {"pipeline",
			at(`"current_step":"fetch","remaining_steps":["sort","write"]`, said("fetch", "running", "")),
			`fetch {"text":"make a report"}; sort {"by":"fetch"}; write {"by":"sort"}`, `{"by":"write"}`},
		"by the states alone": {"pipeline",
			at("", done("fetch", `{"n":1}`)+","+done("sort", `{"n":2}`)), `write {"n":2}`, `{"by":"write"}`},
		"the current step has ended": {"pipeline",
			at(`"current_step":"sort","completed_steps":["fetch"]`, done("fetch", `{"n":1}`)+","+done("sort", `{"n":2}`)), `write {"n":2}`, `{"by":"write"}`},
		"the same member twice": {"twice",
			at(`"current_step":"fetch","completed_steps":["fetch","sort"]`, done("fetch", `{"n":1}`)+","+done("sort", `{"n":2}`)), `fetch {"n":2}`, `{"by":"fetch"}`},
		"no position": {"pipeline", "", `fetch {"text":"make a report"}; sort {"by":"fetch"}; write {"by":"sort"}`, `{"by":"write"}`},

		"a step that is not here": {"pipeline",
			at(`"current_step":"sort","completed_steps":["download"]`, ""), "", `!had completed "download" as its step 1`},
		"steps in another order": {"pipeline",
			at(`"current_step":"write","completed_steps":["sort","fetch"]`, done("fetch", `{}`)), "", `!which is "fetch" here`},
		"more steps than there are": {"pipeline",
			at(`"completed_steps":["fetch","sort","write","print"]`, ""), "", `!4 steps were completed`},
		"another step is current": {"pipeline",
			at(`"current_step":"write","completed_steps":["fetch"]`, done("fetch", `{}`)), "", `!stands at "write"`},
		"others remain": {"pipeline",
			at(`"current_step":"sort","completed_steps":["fetch"],"remaining_steps":["print"]`, done("fetch", `{}`)), "", `!the steps that remain`},
		"no output": {"pipeline",
			at(`"current_step":"sort","completed_steps":["fetch"]`, ""), "", `!has no output of it`},
		"no output, though it is completed": {"pipeline",
			at(`"current_step":"sort","completed_steps":["fetch"]`, said("fetch", "completed", "")), "", `!has no output of it`},
		"a gap": {"pipeline",
			at(`"current_step":"fetch"`, done("sort", `{}`)), "", `!"fetch" before it was not`},
		"a completed step that failed": {"pipeline",
			at(`"completed_steps":["fetch"],"current_step":"sort"`, said("fetch", "failed", "")), "", `!its subagent is failed`},
		"a stranger": {"pipeline",
			at(`"completed_steps":["fetch"],"current_step":"sort"`, done("fetch", `{}`)+","+done("helper", `{}`)), "", `!had a subagent "helper"`},
		"a member in the middle of its work": {"pipeline",
			at(`"current_step":"fetch"`, said("fetch", "running", `,"state_id":"`+uuid.NewString()+`"`)), "", `!in the middle of its work`},

		"a router that has chosen": {"router",
			at(`"current_step":"routing","current_subagent":"write"`, said("write", "running", "")), `write {"text":"make a report"}`, `{"by":"write"}`},
		"a router whose member has answered": {"router",
			at(`"current_subagent":"write"`, done("write", `{"page":2}`)), ``, `{"page":2}`},
		"a router that chose two": {"router",
			at(`"current_subagent":"write"`, done("sort", `{}`)), "", `!a router chooses one`},
		"a router that chose a stranger": {"router", at(`"current_subagent":"helper"`, ""), "", `!no subagent of that name`},
		"a router without the answer":    {"router", at(`"completed_steps":["sort"]`, ""), "", `!has no output of it`},

		"a swarm of which two have answered": {"swarm",
			at(`"completed_steps":["fetch","sort"]`, done("fetch", `{"by":"fetch"}`)+","+done("sort", `{"by":"sort"}`)+","+said("write", "pending", "")),
			`write {"text":"make a report"}`, `by`},
		"a swarm without an answer": {"swarm", at(`"completed_steps":["fetch"]`, ""), "", `!has no output of it`},
	} {
		c := &state.Checkpoint{Doc: *foreign(t, "agent."+tt.team, tt.members)}
		var receipt mesh.Submitted
		natstest.Eventually(t, name+": a discovery finds the agent", func() (found bool) {
			var err error
			if receipt, err = r.client.Fork(r.ctx(), c, state.ForkOf{}); err != nil && !errors.Is(err, transfer.ErrUnknownAgent) {
				t.Fatalf("%s: %v", name, err)
			}
			return err == nil // a discovery does not wait for a worker that answers late
		})
		task := taskFor("agent."+tt.team, `{}`, "")
		task.ID = receipt.TaskID
		got := r.result(task)
		want, refused := strings.CutPrefix(tt.result, "!")
		switch {
		case refused && (got.err == nil || !strings.Contains(got.err.Message, want)):
			t.Errorf("%s: %v, want an error with %s", name, got, want)
		case !refused && (got.err != nil || !strings.Contains(got.payload, want)):
			t.Errorf("%s: %s, %v, want %s", name, got.payload, got.err, want)
		}
		if asked := members.heard(); asked != tt.asked {
			t.Errorf("%s: asked %s, want %s", name, asked, tt.asked)
		}
	}
}

// The same for a file with a token, by which another platform transfers its run. The record of the
// run here contains the earlier answers with their agents.
func TestAPipelineIsHandedOverByAnotherPlatform(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	members := &crew{}
	r.serve(true, members, "agent.fetch", "agent.sort", "agent.write")
	r.serve(true, team(plan(t, `{"pipeline":["agent.fetch","agent.sort","agent.write"]}`, ""), nil), boss)
	doc := foreign(t, boss, `,"pipeline_position":{"current_step":"agent.sort","completed_steps":["agent.fetch"]},"subagent_states":[{"alias":"agent.fetch",`+someAgent+`,"status":"completed","output":{"rows":3}}]`)

	ring := new(sign.Ring)
	signer, key, err := sign.NewKey("conveyor-1", sign.Ed25519, boss)
	if err == nil {
		err = ring.Put(sign.Local, key)
	}
	if err != nil {
		t.Fatal(err)
	}
	plain, err := aaif.New(doc)
	if err != nil {
		t.Fatal(err)
	}
	text, err := plain.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	g := transfer.Grant{ID: uuid.NewString(), Issuer: boss, Source: "conveyor", Target: "paris", AgentID: doc.AgentID, RunID: doc.RunID, StateID: doc.StateID, Issued: time.Now()}
	if g.Checksum, err = state.ContentChecksum(text); err != nil {
		t.Fatal(err)
	}
	token, err := g.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	file, err := transfer.PutToken(text, token)
	if err != nil {
		t.Fatal(err)
	}
	node := r.node(r.client.Conn(), mesh.Config{Entity: "service.handoff", Verifier: sign.Verifier{Ring: ring}}, true)
	receiver, err := node.Receiver(mesh.ReceiverOptions{Platform: "paris", Handoffs: jetstream.NewHandoffs(r.js(r.client.Conn()), subject.Map{})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := receiver.Import(r.ctx(), file, nil); err != nil {
		t.Fatal(err)
	}
	task := taskFor(boss, `{}`, "")
	task.ID = state.AdoptedTask(boss, doc.RunID)
	if got := r.result(task); got.err != nil || got.payload != `{"by":"write"}` {
		t.Errorf("%s, %v", got.payload, got.err)
	}
	if asked := members.heard(); asked != `sort {"rows":3}; write {"by":"sort"}` {
		t.Errorf("asked %s", asked)
	}
	var c *state.Checkpoint
	until(t, "the run has ended", func() bool {
		c, err = r.client.Run(r.ctx(), boss, doc.RunID)
		return err == nil && c.Terminal()
	})
	if s := c.Doc.SubagentStates; len(s) != 3 || s[0].AgentID != "5b0a8c2e-1111-4111-8111-111111111111" || string(s[0].Output) != `{"rows":3}` {
		t.Errorf("subagent states %+v", s)
	}
	standing, err := progress.Of(c.Mesh.Plan)
	if err != nil || len(standing.Outcomes) != 3 {
		t.Errorf("%+v, %v", standing, err)
	}
}

package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents/schema"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// team is the [mesh.Handler] of an agent whose document declares a team.
// Package orchestrate runs the team, and uses the agent's own model where the
// plan needs it.
type team struct {
	team     *orchestrate.Team
	loop     *loop // nil: no model
	contract *contract
	secrets  *secret.Redactor
}

// newTeam makes the handler of a definition that declares a team.
func newTeam(entity string, def *aaif.Definition, plan *orchestrate.Plan, c *contract, opts Options) (*team, []aaif.Problem, error) {
	t := &team{contract: c, secrets: opts.Redactor, team: orchestrate.New(plan, orchestrate.Options{Directory: opts.Directory, Logger: opts.Logger, Handoffs: newHandoffs(def, opts), Shape: opts.Shape})}
	if !plan.NeedsMind() {
		return t, nil, nil
	}
	if plan.Pattern == orchestrate.ModelLed {
		opts.team = t.team
	}
	l, notices, err := newLoop(entity, def, c, opts)
	if err != nil {
		return nil, notices, err
	}
	t.loop = l
	return t, notices, nil
}

// Handle runs a task with the team, from its last checkpoint.
func (t *team) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	if err := unanswered(t.team.Plan(), task); err != nil {
		return nil, err
	}
	var m *agentModel
	var own orchestrate.AgentModel
	if t.loop != nil {
		m = newAgentModel(t.loop, task)
		m.r.merges = t.team.Plan().Pattern == orchestrate.Swarm
		own = m
	}
	res, err := t.team.Handle(ctx, task, own)
	if err != nil {
		return nil, t.secrets.Error(err)
	}
	used := res.Usage
	if m != nil {
		used = used.Add(m.Used())
	}
	return t.withUsage(task, withRefs(task, t.withSwarm(task, res), memberRefs(task, res)), used), nil
}

// withSwarm adds to the payload how a swarm reached its result, if the result's
// schema permits the member and the result has room for it.
func (t *team) withSwarm(task *mesh.Task, res orchestrate.Result) json.RawMessage {
	if res.Swarm == nil {
		return res.Payload
	}
	with, ok := addMember(orchestrate.Without(res.Payload, func(name string) bool { return name == "swarm" }), "swarm", res.Swarm)
	most := task.MaxMessage()
	if !ok || most > 0 && len(with) > most-roomAround || task.Envelope.Reply(envelope.TypeResult, with).Validate() != nil || t.contract.fits(task.Intent(), with) != nil {
		return res.Payload
	}
	return with
}

// roomAround is how many bytes of a message are kept for the rest of a result's envelope: its other
// fields, a signature, and what is added to the payload.
const roomAround = 4 << 10

// withUsage adds to the payload the usage of the whole team, if the result's
// schema permits the member.
func (t *team) withUsage(task *mesh.Task, payload json.RawMessage, used orchestrate.Usage) json.RawMessage {
	if used == (orchestrate.Usage{}) {
		return payload
	}
	bare := orchestrate.Without(payload, func(name string) bool { return name == "usage" })
	with, ok := addMember(bare, "usage", used)
	if !ok || t.contract.fits(task.Intent(), with) != nil {
		return payload
	}
	return with
}

// agentModel lets a team use the agent's model: it is an [orchestrate.AgentModel] for one
// task.
type agentModel struct {
	l    *loop
	task *mesh.Task
	mu   sync.Mutex // one question at a time
	r    *run
}

func newAgentModel(l *loop, task *mesh.Task) *agentModel {
	m := &agentModel{l: l, task: task, r: &run{journal: live{}}}
	if run := task.Run(); run != nil {
		m.r.journal = run
		m.restore(run.View())
	}
	return m
}

// restore continues the counts of a checkpoint, so that max_iterations holds for the whole
// run (AAIF, Agent State Document).
func (m *agentModel) restore(cp *state.Checkpoint) {
	m.r.id, m.r.usage, m.r.turns = cp.Doc.RunID, cp.Mesh.Usage, int(cp.Doc.Iteration.Int64())
}

// Used returns the model's usage so far.
func (m *agentModel) Used() orchestrate.Usage {
	used, _ := m.counts()
	return usageOf(used)
}

// counts returns the model's usage and turns so far. Members that the model calls ask for
// them while further calls begin, which are counted.
func (m *agentModel) counts() (state.Usage, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.r.mu.Lock() // always after mu, and after the lock of a commit
	defer m.r.mu.Unlock()
	return m.r.usage, m.r.turns
}

func usageOf(u state.Usage) orchestrate.Usage {
	return orchestrate.Usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CostUSD: model.USD(u.CostNanoUSD)}
}

// Save writes the usage of questions into a checkpoint.
func (m *agentModel) Save(cp *state.Checkpoint) {
	used, turns := m.counts()
	cp.Mesh.Usage, cp.Doc.Iteration = used, aaif.Int(int64(turns))
}

// Work runs the agent's loop on another payload than the task's.
func (m *agentModel) Work(ctx context.Context, payload json.RawMessage) (json.RawMessage, error) {
	m.r.input = payload
	var cp *state.Checkpoint
	if run := m.task.Run(); run != nil {
		cp = run.View()
	}
	return m.l.work(ctx, m.task, m.r, cp)
}

// Relayed reports whether the work has ended with the answer of another agent, by a handoff rule.
func (m *agentModel) Relayed() bool { return m.r.relayed }

// Ask asks the model one question, without the agent's tools. An answer that
// does not fit the question gets one repair turn.
func (m *agentModel) Ask(ctx context.Context, q orchestrate.Question) (json.RawMessage, error) {
	due, err := schema.Compile(q.Schema)
	if err != nil {
		return nil, fmt.Errorf("the schema of a question: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	req := m.l.base
	req.Format = model.Format{Type: model.FormatJSON}
	req.Messages = []model.Message{model.System(m.l.system + "\n\n" + q.Asked + jsonPrompt(q.Schema)), model.User(taskMessage(ctx, q.Input))}
	for repaired := false; ; repaired = true {
		res, err := m.turn(ctx, &req)
		if err != nil {
			return nil, err
		}
		answer := bareAnswer(model.Unfenced(res.Message.Content), q.Bare)
		if !json.Valid(answer) {
			err = errors.New("it is no JSON")
		} else {
			err = due.Validate(answer)
		}
		if err == nil {
			return answer, nil
		}
		if repaired {
			return nil, envelope.Errorf(envelope.CodeModel, "%w: %v", orchestrate.ErrAnswer, err)
		}
		req.Messages = append(req.Messages, res.Message, model.User("This answer cannot be used: "+err.Error()+"\nAnswer again, with nothing but the JSON object."))
	}
}

// bareAnswer converts an answer to JSON: a text that is not an object becomes
// the given member of one.
func bareAnswer(text, member string) json.RawMessage {
	if member == "" || strings.HasPrefix(text, "{") {
		return json.RawMessage(text)
	}
	name := strings.Trim(text, " \t\n.\"'")
	return append(envelope.AppendString(fmt.Appendf(nil, "{%q:", member), name), '}')
}

// turn takes one turn of the model, which counts as one of the agent's. On the
// live lane a failed turn is retried as the document's max_retries says.
func (m *agentModel) turn(ctx context.Context, req *model.Request) (*model.Response, error) {
	for tries := 0; ; {
		if m.r.turns >= m.l.maxTurns {
			return nil, m.l.exhausted()
		}
		res, err := m.l.quietly(ctx, m.task, m.r, req)
		switch {
		case err == nil:
			m.r.turns++
			return res, nil
		case errors.Is(err, errStopped) && ctx.Err() == nil:
			if err := m.r.pause(ctx); err != nil {
				return nil, err
			}
		case m.l.again(ctx, m.task, m.r, &tries, err):
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		default:
			return nil, m.l.modelFailure(ctx, m.task, m.r, err)
		}
	}
}

// teamEntry makes the entry of a toolset that offers a team's members as tools.
func teamEntry(t *orchestrate.Team, redactor *secret.Redactor) *toolEntry {
	return &toolEntry{Tool: &aaif.Tool{Name: "subagents"}, pointer: "/agent/orchestration/subagents", source: t.Tools(), secrets: redactor, schemas: new(schema.Pool), team: true}
}

// teamFunction returns the tool for a function that the document declares and a
// member of the team implements. It reports false if there is none.
func teamFunction(t *orchestrate.Team, declared *aaif.Tool) (tool.Tool, bool) {
	if t == nil || declared.Name != orchestrate.InvokeSubagent {
		return nil, false
	}
	return t.Invoke(declared), true
}

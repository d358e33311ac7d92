package state

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/model"
)

// mesh writes the x-aeemesh member. The names of each object must be in order, and every
// field must be written: a test sets them all and looks for each.
func (w *writer) mesh(m *Mesh, t *texts) {
	more := sortedMembers(m.More)
	// upTo writes the members that this release does not know and that sort before name;
	// with "" all that are left.
	upTo := func(name string) {
		for len(more) > 0 && (name == "" || compareNames(more[0].name, name) < 0) {
			w.anyName(more[0].name)
			w.canonical(Extension+" "+more[0].name, more[0].value)
			more = more[1:]
		}
	}
	w.begin()
	upTo("attempt")
	w.optInt("attempt", int64(m.Attempt))
	upTo("calls")
	w.calls(m.Calls)
	upTo("cbor")
	w.optTrue("cbor", m.CBOR)
	upTo("claims")
	w.optInt("claims", int64(m.Claims))
	upTo("commands")
	w.texts("commands", m.Commands)
	upTo("dead")
	w.opt("dead", m.Dead)
	upTo("deadline")
	w.optTime("deadline", m.Deadline)
	upTo("effects")
	w.effects(m.Effects, t)
	upTo("entity")
	w.text("entity", m.Entity)
	upTo("epoch")
	w.uint("epoch", m.Epoch)
	upTo("format")
	w.int("format", int64(m.format()))
	upTo("handed")
	w.handed(m.Handed, t)
	upTo("key_id")
	w.opt("key_id", m.KeyID)
	upTo("loop")
	w.quoted("loop", Extension+" loop", m.Loop, t)
	upTo("migration")
	w.migration(m.Migration)
	upTo("noted")
	w.noted(m.Noted)
	upTo("notes")
	w.notes(m.Notes, t)
	upTo("owner")
	w.opt("owner", m.Owner)
	upTo("parent")
	w.parent(m.Parent)
	upTo("plan")
	w.quoted("plan", Extension+" plan", m.Plan, t)
	upTo("priority")
	w.opt("priority", m.Priority)
	upTo("ran_ms")
	w.optInt("ran_ms", int64(m.Ran/time.Millisecond))
	upTo("reply")
	w.quoted("reply", Extension+" reply", m.Reply, t)
	upTo("started_at")
	w.optTime("started_at", m.StartedAt)
	upTo("steering")
	w.steering(m.Steering)
	upTo("step")
	w.step(m.Step)
	upTo("stored_at")
	w.optTime("stored_at", m.StoredAt)
	upTo("stream")
	w.optInt("stream", int64(m.Stream))
	upTo("task")
	w.quoted("task", Extension+" task", m.Task, t)
	upTo("task_id")
	w.opt("task_id", m.TaskID)
	upTo("told")
	w.opt("told", m.Told)
	upTo("trail")
	w.texts("trail", m.Trail)
	upTo("turns")
	w.optInt("turns", int64(m.Turns))
	upTo("usage")
	w.usage(m.Usage)
	upTo("waits")
	w.waits(m.Waits)
	upTo("wake_at")
	w.optTime("wake_at", m.WakeAt)
	upTo("want")
	w.opt("want", m.Pending)
	upTo("work")
	w.optUint("work", m.Work)
	upTo("")
	w.end()
}

func (w *writer) effects(effects []Effect, t *texts) {
	writeEach(w, "effects", effects, func(e *Effect) {
		w.text("args_hash", e.ArgsHash)
		w.optTime("at", e.At)
		w.optTime("done_at", e.DoneAt)
		w.uint("epoch", e.Epoch)
		w.opt("error", e.Error)
		w.text("id", e.ID)
		w.text("key", e.Key)
		w.quoted("result", "effect "+e.ID, e.Result, t)
		w.opt("settled_by", e.SettledBy)
		w.text("status", string(e.Status))
		w.text("tool", e.Tool)
		w.optInt("tries", int64(e.Tries))
	})
}

func (w *writer) calls(calls []Call) {
	writeEach(w, "calls", calls, func(c *Call) {
		w.optTime("at", c.At)
		w.text("id", c.ID)
		w.text("key", c.Key)
		w.optTrue("live", c.Live)
		w.text("to", c.To)
	})
}

func (w *writer) notes(notes []Note, t *texts) {
	writeEach(w, "notes", notes, func(n *Note) {
		writeEach(w, "calls", n.Calls, func(c *model.ToolCall) {
			w.quoted("arguments", "call "+c.ID, c.Arguments, t)
			w.text("id", c.ID)
			w.text("name", c.Name)
		})
		w.optTrue("is_error", n.IsError)
		w.int("message", int64(n.Message))
		w.quoted("provider", "note "+strconv.Itoa(n.Message), n.Provider, t)
	})
}

func (w *writer) migration(m *Migration) {
	if m == nil {
		return
	}
	w.name("migration")
	w.begin()
	w.opt("by", m.By)
	w.opt("detail", m.Detail)
	w.text("id", m.ID)
	w.opt("issuer", m.Issuer)
	w.opt("key", m.Key)
	w.text("phase", string(m.Phase))
	w.optTime("since", m.Since)
	w.opt("source", m.Source)
	w.opt("status", string(m.Status))
	w.opt("target", m.Target)
	w.opt("to", m.To)
	w.end()
}

func (w *writer) handed(h *Handed, t *texts) {
	if h == nil {
		return
	}
	w.name("handed")
	w.begin()
	w.opt("reason", h.Reason)
	w.quoted("task", Extension+" handed", h.Task, t)
	w.text("task_id", h.TaskID)
	w.text("to", h.To)
	w.end()
}

func (w *writer) parent(p *Parent) {
	if p == nil {
		return
	}
	w.name("parent")
	w.begin()
	w.opt("entity", p.Entity)
	w.text("kind", p.Kind)
	w.opt("platform", p.Platform)
	w.optUint("revision", p.Revision)
	w.opt("run", p.Run)
	w.opt("state_id", p.StateID)
	w.opt("task_id", p.TaskID)
	w.end()
}

func (w *writer) steering(all []Steer) {
	writeEach(w, "steering", all, func(s *Steer) {
		w.optTime("at", s.At)
		w.opt("from", s.From)
		w.text("id", s.ID)
		w.text("text", s.Text)
	})
}

func (w *writer) waits(all []Wait) {
	writeEach(w, "waits", all, func(a *Wait) {
		w.optTime("asked", a.Asked)
		w.text("entity", a.Entity)
		w.opt("key", a.Key)
		w.opt("result_schema", a.Schema)
		w.text("task_id", a.TaskID)
		w.optTime("until", a.Until)
		w.optTrue("void", a.Void)
	})
}

func (w *writer) noted(all []Noted) {
	writeEach(w, "noted", all, func(n *Noted) {
		w.optTime("at", n.At)
		w.text("from", n.From)
		w.text("id", n.ID)
		w.text("intent", n.Intent)
		w.opt("key_id", n.KeyID)
		w.opt("reason", n.Reason)
		w.opt("text", n.Text)
	})
}

func (w *writer) step(s Step) {
	w.name("step")
	w.begin()
	w.opt("detail", s.Detail)
	w.text("kind", string(s.Kind))
	w.optInt("ms", s.MS)
	w.opt("name", s.Name)
	w.end()
}

func (w *writer) usage(u Usage) {
	if u == (Usage{}) {
		return
	}
	w.name("usage")
	w.begin()
	w.optInt("cost_nano_usd", u.CostNanoUSD)
	w.optInt("estimated_nano_usd", u.EstimatedNanoUSD)
	w.optInt("estimated_tokens", u.EstimatedTokens)
	w.optInt("input_tokens", u.InputTokens)
	w.optInt("model_calls", u.ModelCalls)
	w.optInt("output_tokens", u.OutputTokens)
	w.optInt("tool_calls", u.ToolCalls)
	w.optInt("tree_cost_nano_usd", u.TreeCostNanoUSD)
	w.optInt("tree_tokens", u.TreeTokens)
	w.optInt("unpriced_calls", u.UnpricedCalls)
	w.end()
}

// MarshalJSONTo encodes m as in a document.
func (m Mesh) MarshalJSONTo(enc *jsontext.Encoder) error {
	b, err := m.MarshalJSON()
	if err != nil {
		return err
	}
	return enc.WriteValue(b)
}

// MarshalJSON is MarshalJSONTo for encoding/json.
func (m Mesh) MarshalJSON() ([]byte, error) {
	var w writer
	w.mesh(&m, nil)
	return w.b, w.err
}

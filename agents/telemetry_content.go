package agents

import (
	"encoding/json"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// MaxContent bounds, in bytes, each text in a span if the operator asks for
// content (Telemetry.Content). maxContents bounds a whole attribute: a longer
// conversation loses its oldest messages.
const (
	MaxContent  = 16 << 10
	maxContents = 4 * MaxContent
)

// said is a message in the format of OpenTelemetry's gen_ai.input.messages.
type said struct {
	Role   string `json:"role"`
	Parts  []part `json:"parts"`
	Finish string `json:"finish_reason,omitempty"`
}

type part struct {
	Type      string          `json:"type"`
	Content   string          `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Response  string          `json:"response,omitempty"`
}

// conversation adds the messages of one model call to its span.
func (r *reporter) conversation(span trace.Span, req *model.Request, res *model.Response) {
	var system []part
	var messages []said
	for i := range req.Messages {
		m := r.message(&req.Messages[i])
		if req.Messages[i].Role == model.RoleSystem {
			system = append(system, m.Parts...)
			continue
		}
		messages = append(messages, m)
	}
	out := r.message(&res.Message)
	out.Finish = string(res.Finish)
	span.SetAttributes(r.textAttribute("gen_ai.system_instructions", bounded(system)),
		r.textAttribute("gen_ai.input.messages", bounded(messages)), r.textAttribute("gen_ai.output.messages", bounded([]said{out})))
}

// textAttribute is an attribute with a text of the conversation, without the credentials
// that this process knows.
func (r *reporter) textAttribute(name, text string) attribute.KeyValue {
	return attribute.String(name, r.secrets.Scrub(text))
}

// cut bounds a text of the conversation. Credentials are removed first, because half a credential
// would not be recognized.
func (r *reporter) cut(text string) string { return clip.Text(r.secrets.Scrub(text), MaxContent) }

func (r *reporter) message(m *model.Message) said {
	out := said{Role: string(m.Role), Parts: []part{}}
	if m.Role == model.RoleTool {
		out.Parts = append(out.Parts, part{Type: "tool_call_response", ID: m.ToolCallID, Response: r.cut(m.Content)})
		return out
	}
	if m.Content != "" {
		out.Parts = append(out.Parts, part{Type: "text", Content: r.cut(m.Content)})
	}
	for _, c := range m.ToolCalls {
		p := part{Type: "tool_call", ID: c.ID, Name: c.Name, Arguments: c.Arguments}
		if len(c.Arguments) > MaxContent || !json.Valid(c.Arguments) {
			p.Arguments, _ = json.Marshal(r.cut(string(c.Arguments)))
		}
		out.Parts = append(out.Parts, p)
	}
	return out
}

// exchange adds a task's payload and its result to the run's span.
func (r *reporter) exchange(span trace.Span, task, result json.RawMessage) {
	span.SetAttributes(r.textAttribute("gen_ai.input.messages", bounded([]said{{Role: string(model.RoleUser), Parts: []part{{Type: "text", Content: r.cut(userMessage(task))}}}})))
	if result != nil {
		span.SetAttributes(r.textAttribute("gen_ai.output.messages", bounded([]said{{Role: string(model.RoleAssistant), Parts: []part{{Type: "text", Content: r.cut(string(result))}}}})))
	}
}

// bounded encodes a list as JSON. If that is too long, it leaves out elements
// from the beginning.
func bounded[T any](list []T) string {
	left := maxContents
	first := len(list)
	raws := make([]json.RawMessage, len(list))
	for ; first > 0; first-- {
		raw, err := json.Marshal(list[first-1])
		if err != nil {
			break // cannot happen: the elements are texts and valid JSON
		}
		if left -= len(raw); left < 0 {
			break
		}
		raws[first-1] = raw
	}
	text, err := json.Marshal(raws[first:])
	if err != nil {
		return "[]"
	}
	return string(text)
}

package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// answerFormat is the form of answers that a document declares:
// model.response_format, or else the one that follows from io.format, where
// "structured" means JSON by io.output_schema.
func answerFormat(a *aaif.Agent) aaif.ResponseFormat {
	if m := a.Model; m != nil && m.ResponseFormat != "" {
		return m.ResponseFormat
	}
	if a.IO == nil || a.IO.Format == "" {
		return ""
	}
	switch a.IO.Format {
	case aaif.IOJSON:
		return aaif.ResponseJSON
	case aaif.IOMarkdown:
		return aaif.ResponseMarkdown
	case aaif.IOStructured:
		return aaif.ResponseJSONSchema
	}
	return aaif.ResponseText
}

// wantsJSON reports whether the model must answer a task with a JSON object:
// because the document says so, or because the result's schema does not admit
// {"text": …}.
func (l *loop) wantsJSON(task *mesh.Task) bool {
	if f := l.formatFor(task); f == aaif.ResponseJSON || f == aaif.ResponseJSONSchema {
		return true
	}
	return l.contract.fits(task.Intent(), json.RawMessage(`{"text":"an answer"}`)) != nil
}

// requestFormat is the response format that is requested from the provider.
func (l *loop) requestFormat(task *mesh.Task) model.Format {
	switch schema := l.contract.schema(task.Intent()); {
	case !l.wantsJSON(task):
		return model.Format{}
	case l.format == aaif.ResponseJSONSchema && schema != nil:
		return model.Format{Type: model.FormatJSONSchema, Schema: schema.JSON()}
	}
	return model.Format{Type: model.FormatJSON}
}

// answer makes the model's last turn the result's payload. If the turn does not
// fit, the model is told why and gets one repair turn.
//
// If a steering message arrived while the model generated its answer and turns
// are left, the model takes another turn with that message first.
func (l *loop) answer(ctx context.Context, task *mesh.Task, r *run) error {
	if len(r.journal.Steering()) > 0 && r.turns < l.maxTurns {
		r.phase = phaseModel
		return nil
	}
	content := r.messages[len(r.messages)-1].Content
	payload, problem := l.payload(task, r, content)
	switch {
	case problem == "":
		r.payload = payload
		r.phase = phaseAccount
		return nil
	case r.repaired || r.turns >= l.maxTurns:
		return envelope.Errorf(envelope.CodeOutputSchema, "the model's answer cannot be the result: %s", problem)
	}
	r.repaired = true
	r.messages = append(r.messages, model.User("This answer cannot be used: "+problem+"\nAnswer again, with nothing but the JSON object."))
	r.phase = phaseModel
	return r.write(ctx, state.Step{Kind: state.StepAnswer, Detail: "cannot be used; asked to correct it"}, r.save)
}

// payload makes a model's answer a result's payload, or returns what is wrong
// with it.
func (l *loop) payload(task *mesh.Task, r *run, content string) (_ json.RawMessage, problem string) {
	payload := append(envelope.AppendString([]byte(`{"text":`), strings.ToValidUTF8(content, "\uFFFD")), '}')
	if l.echoes && sameJSON(content, r.input) {
		payload = []byte(content) // the echo of a payload that is an object is sent as that object
	}
	if l.wantsJSON(task) {
		value := jsontext.Value(model.Unfenced(content))
		err := value.Compact()
		if err == nil && !model.Holdable(value) { // Compact allows a name twice
			err = errors.New("a name is there twice, or half a surrogate pair, or it nests too deep")
		}
		if err != nil {
			return nil, fmt.Sprintf("it is no valid JSON (%v)", err)
		}
		if value.Kind() != '{' {
			return nil, "it is no JSON object"
		}
		payload = value
	}
	if err := l.contract.fits(task.Intent(), json.RawMessage(payload)); err != nil {
		return nil, err.Error()
	}
	return json.RawMessage(payload), ""
}

// sameJSON reports whether a text is byte for byte the JSON of a payload, apart
// from white space.
func sameJSON(text string, payload json.RawMessage) bool {
	a, b := jsontext.Value(text), jsontext.Value(slices.Clone(payload))
	return a.Compact() == nil && b.Compact() == nil && string(a) == string(b)
}

// tokens is the reserved member usage of a result.
type tokens struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	Truncated    bool  `json:"truncated,omitempty"` // the answer was cut off at the model's token limit

	CostUSD model.USD `json:"cost_usd,omitempty"` // the cost of the turns whose price is known
}

// addUsage adds usage to the payload if the provider reported any and the
// intent's schema permits the member.
func (l *loop) addUsage(task *mesh.Task, r *run) {
	if r.usage.InputTokens == 0 && r.usage.OutputTokens == 0 && !r.cut {
		return
	}
	with, ok := addMember(r.payload, "usage", tokens{r.usage.InputTokens, r.usage.OutputTokens, r.cut, model.USD(r.usage.CostNanoUSD)})
	if ok && l.contract.fits(task.Intent(), with) == nil {
		r.payload = with
	}
}

// addMember adds a member to a compact JSON object. It reports false if the
// object already has a member of that name.
func addMember(object json.RawMessage, name string, value any) (json.RawMessage, bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return object, false
	}
	if _, taken := members[name]; taken {
		return object, false
	}
	raw, err := envelope.EncodeJSON(value) // escapes of HTML would make it larger
	if err != nil {
		return object, false
	}
	out := append(make([]byte, 0, len(object)+len(name)+len(raw)+8), object[:len(object)-1]...)
	if len(members) > 0 {
		out = append(out, ',')
	}
	return fmt.Appendf(out, "%q:%s}", name, raw), true
}

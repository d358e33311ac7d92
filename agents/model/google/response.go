package google

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

const (
	adapter  = "google" // names this package in Message.Provider
	maxCalls = 256      // tool calls in one turn
)

// turn is an answer that is being assembled.
type turn struct {
	onDelta func(model.Delta) error
	text    strings.Builder
	parts   []answered
	finish  finishReason
	blocked bool
	usage   model.Usage
	model   string
}

// answered is a part of the answer; adjacent plain texts form one part.
type answered struct {
	from, to int // its text, in that of the turn
	call     *call
	sign     []byte
}

// whole reads an answer that is one document. An empty body adds nothing to the turn.
func (t *turn) whole(res *http.Response) error {
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return brokeOff(err)
	}
	if len(body) == 0 {
		return nil
	}
	a, err := parseAnswer(body)
	if err != nil {
		return err
	}
	return t.chunk(a)
}

// stream reads an answer that is a stream of events. Each event is a part of the answer or an
// error. The API also writes an error as plain JSON between the events.
func (t *turn) stream(res *http.Response, most int64) error {
	// The last event may lack the empty line that ends it.
	events := endpoint.NewEvents(io.MultiReader(res.Body, strings.NewReader("\n\n")), most)
	for {
		data, err := events.Next()
		if err != nil && err != io.EOF {
			return brokeOff(err)
		}
		if stray := events.Stray(); len(stray) > 0 {
			return strayError(stray, res)
		}
		if err == io.EOF {
			return nil
		}
		if err := reported(data, res); err != nil {
			return err
		}
		a, err := parseAnswer(data)
		if err != nil {
			return err
		}
		if err := t.chunk(a); err != nil {
			return err
		}
	}
}

// strayError returns the error of text between events: of its first JSON value,
// in which single members may have wrong types.
func strayError(text []byte, res *http.Response) error {
	var first json.RawMessage
	var d struct {
		Error *rpcStatus `json:"error"`
	}
	if json.NewDecoder(bytes.NewReader(text)).Decode(&first) == nil && endpoint.Decode(first, &d) == nil && d.Error != nil {
		return &report{*d.Error, res.StatusCode, res.Header}
	}
	return errStrange
}

func brokeOff(err error) error { return fmt.Errorf("the answer broke off: %w", err) }

// reported returns a *report if a document within an answer is an error.
func reported(doc []byte, res *http.Response) error {
	if said := parseStatus(doc); said != nil {
		return &report{*said, res.StatusCode, res.Header}
	}
	return nil
}

// chunk adds one response of the API to the turn.
func (t *turn) chunk(a *answer) error {
	if a.ModelVersion != "" {
		t.model = a.ModelVersion
	}
	if u := a.UsageMetadata; u != nil {
		t.usage = model.Usage{
			InputTokens:       int64(u.Prompt) + int64(u.ToolPrompt),
			OutputTokens:      int64(u.Candidates) + int64(u.Thoughts),
			CachedInputTokens: int64(u.Cached),
		}
	}
	if a.PromptFeedback.BlockReason != "" {
		t.blocked = true
	}
	for i := range a.Candidates {
		c := &a.Candidates[i]
		if c.Index != 0 {
			continue
		}
		if c.FinishReason != "" && c.FinishReason != finishUnspecified {
			t.finish = c.FinishReason
		}
		for j := range c.Content.Parts {
			if err := t.part(&c.Content.Parts[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// part adds a part. Thoughts are not part of the answer.
func (t *turn) part(p *part) error {
	switch {
	case p.Thought:
		return nil
	case p.FunctionCall != nil:
		if len(t.parts) >= maxCalls {
			return fmt.Errorf("the answer has more than %d parts", maxCalls)
		}
		t.parts = append(t.parts, answered{call: p.FunctionCall, sign: p.ThoughtSignature})
		return nil
	}
	last, from := len(t.parts)-1, t.text.Len()
	switch {
	case p.Text == "" && len(p.ThoughtSignature) == 0:
		return nil
	case last >= 0 && t.parts[last].call == nil && (p.Text == "" || len(t.parts[last].sign) == 0 && len(p.ThoughtSignature) == 0):
		t.parts[last].to += len(p.Text)
		if len(p.ThoughtSignature) > 0 { // the signature of a streamed text arrives last, in a part of its own
			t.parts[last].sign = p.ThoughtSignature
		}
	case p.Text == "":
		return nil // it belongs to no received part
	case len(t.parts) >= maxCalls:
		return fmt.Errorf("the answer has more than %d parts", maxCalls)
	default:
		t.parts = append(t.parts, answered{from: from, to: from + len(p.Text), sign: p.ThoughtSignature})
	}
	t.text.WriteString(p.Text)
	return model.Tell(t.onDelta, p.Text)
}

func (t *turn) response(req *model.Request) (*model.Response, error) {
	finish, err := t.reason()
	if err != nil {
		return nil, err
	}
	res := &model.Response{Message: model.Assistant(t.text.String()), Finish: finish, Usage: t.usage, Model: t.model}
	res.Model = cmp.Or(res.Model, req.Model)
	ids := model.TakenIDs(req)
	var pieces []model.Piece
	for _, p := range t.parts {
		n := note{Signature: p.sign}
		piece := model.Piece{Text: res.Message.Content[p.from:p.to]}
		if p.call != nil {
			call, given, err := toolCall(p.call, ids)
			if err != nil {
				return nil, err
			}
			n.ID = given
			res.Message.ToolCalls = append(res.Message.ToolCalls, call)
			piece = model.Piece{Call: &call}
		}
		if len(n.Signature) > 0 || n.ID {
			raw, err := json.Marshal(n)
			if err != nil {
				return nil, model.Errorf(model.ErrUnavailable, "the answer: %w", err)
			}
			pieces = append(pieces, model.Piece{Raw: raw})
		}
		pieces = append(pieces, piece)
	}
	res.Message.Provider = model.PackPieces(adapter, req.Model, pieces)
	return res, nil
}

// reason returns why the turn ended. Without a reason it has not ended.
func (t *turn) reason() (model.Finish, error) {
	calls := false
	for _, p := range t.parts {
		calls = calls || p.call != nil
	}
	switch t.finish {
	case "":
		if t.blocked {
			return model.FinishContentFilter, nil
		}
		return "", model.Errorf(model.ErrUnavailable, "the answer broke off: %w", io.ErrUnexpectedEOF)
	case finishMaxTokens:
		return model.FinishLength, nil
	case finishSafety, finishRecitation, finishLanguage, finishBlocklist, finishProhibitedContent, finishSPII,
		finishImageSafety, finishImageProhibited, finishImageRecitation:
		return model.FinishContentFilter, nil
	case finishMalformedCall, finishUnexpectedCall, finishTooManyCalls:
		return "", model.Errorf(model.ErrUnavailable, "the model made a call that its provider does not pass on: %s", t.finish)
	case finishMalformed, finishNoSignature:
		return "", model.Errorf(model.ErrUnavailable, "the provider ended the answer: %s", t.finish)
	}
	if calls {
		return model.FinishToolCalls, nil
	}
	if t.finish != finishStop && t.text.Len() == 0 { // OTHER, NO_IMAGE, or a reason that is not known here
		return "", model.Errorf(model.ErrUnavailable, "the model answered nothing: %s", t.finish)
	}
	return model.FinishStop, nil
}

// toolCall returns the next call of the answer. If the model has given it no
// id, it gets one that is unique in the conversation.
func toolCall(f *call, ids map[string]bool) (out model.ToolCall, given bool, err error) {
	if f.Name == "" {
		return out, false, model.Errorf(model.ErrUnavailable, "the answer has a tool call without a name")
	}
	given = f.ID != "" && !ids[f.ID]
	return model.ToolCall{ID: model.FreshID(ids, f.ID, len(ids)+1), Name: f.Name, Arguments: model.Arguments(string(f.Args))}, given, nil
}

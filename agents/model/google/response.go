package google

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"google.golang.org/genai"

	"github.com/aeemesh/aeemesh/agents/model"
)

const (
	adapter  = "google" // this package's member of Message.Provider
	maxCalls = 256      // tool calls in one turn
)

// callbackError marks an error of the caller's callback.
type callbackError struct{ error }

// turn is an answer that is being assembled.
type turn struct {
	onDelta func(model.Delta) error
	text    strings.Builder
	parts   []answered
	finish  genai.FinishReason
	blocked bool
	usage   model.Usage
	model   string
}

// answered is a part of the answer; adjacent plain texts form one part.
type answered struct {
	text string
	call *genai.FunctionCall
	sign []byte
}

// chunk adds one response of the API to the turn.
func (t *turn) chunk(res *genai.GenerateContentResponse) error {
	if res.ModelVersion != "" {
		t.model = res.ModelVersion
	}
	if u := res.UsageMetadata; u != nil {
		t.usage = model.Usage{
			InputTokens:       int64(u.PromptTokenCount) + int64(u.ToolUsePromptTokenCount),
			OutputTokens:      int64(u.CandidatesTokenCount) + int64(u.ThoughtsTokenCount),
			CachedInputTokens: int64(u.CachedContentTokenCount),
		}
	}
	if f := res.PromptFeedback; f != nil && f.BlockReason != "" {
		t.blocked = true
	}
	for _, c := range res.Candidates {
		if c == nil || c.Index != 0 {
			continue
		}
		if c.FinishReason != "" && c.FinishReason != genai.FinishReasonUnspecified {
			t.finish = c.FinishReason
		}
		if c.Content == nil {
			continue
		}
		for _, p := range c.Content.Parts {
			if err := t.part(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// part adds a part. Thoughts are not part of the answer.
func (t *turn) part(p *genai.Part) error {
	switch {
	case p == nil || p.Thought:
		return nil
	case p.FunctionCall != nil:
		if len(t.parts) >= maxCalls {
			return fmt.Errorf("the answer has more than %d parts", maxCalls)
		}
		t.parts = append(t.parts, answered{call: p.FunctionCall, sign: p.ThoughtSignature})
		return nil
	}
	last := len(t.parts) - 1
	switch {
	case p.Text == "" && len(p.ThoughtSignature) == 0:
		return nil
	case last >= 0 && t.parts[last].call == nil && (p.Text == "" || len(t.parts[last].sign) == 0 && len(p.ThoughtSignature) == 0):
		t.parts[last].text += p.Text
		if len(p.ThoughtSignature) > 0 { // the signature of a streamed text arrives last, in a part of its own
			t.parts[last].sign = p.ThoughtSignature
		}
	case p.Text == "":
		return nil // it belongs to nothing that was received
	case len(t.parts) >= maxCalls:
		return fmt.Errorf("the answer has more than %d parts", maxCalls)
	default:
		t.parts = append(t.parts, answered{text: p.Text, sign: p.ThoughtSignature})
	}
	if p.Text == "" {
		return nil
	}
	t.text.WriteString(p.Text)
	if t.onDelta == nil {
		return nil
	}
	if err := t.onDelta(model.Delta{Text: p.Text}); err != nil {
		return callbackError{err}
	}
	return nil
}

func (t *turn) response(req *model.Request, x *exchange) (*model.Response, error) {
	finish, err := t.reason()
	if err != nil {
		return nil, err
	}
	res := &model.Response{Message: model.Assistant(t.text.String()), Finish: finish, Usage: t.usage, Model: t.model}
	if res.Model == "" {
		res.Model = req.Model
	}
	exact := exactArguments(x.answer.Bytes())
	ids := takenIDs(req)
	var pieces []model.Piece
	next := 0
	for _, p := range t.parts {
		n := note{Signature: p.sign}
		piece := model.Piece{Text: p.text}
		if p.call != nil {
			call, given, err := toolCall(p.call, exact, next, ids)
			if err != nil {
				return nil, err
			}
			next++
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
	case genai.FinishReasonMaxTokens:
		return model.FinishLength, nil
	case genai.FinishReasonSafety, genai.FinishReasonRecitation, genai.FinishReasonLanguage, genai.FinishReasonBlocklist,
		genai.FinishReasonProhibitedContent, genai.FinishReasonSPII, genai.FinishReasonImageSafety,
		genai.FinishReasonImageProhibitedContent, genai.FinishReasonImageRecitation:
		return model.FinishContentFilter, nil
	case genai.FinishReasonMalformedFunctionCall, genai.FinishReasonUnexpectedToolCall, genai.FinishReasonTooManyToolCalls:
		return "", model.Errorf(model.ErrUnavailable, "the model made a call that its provider does not pass on: %s", t.finish)
	}
	if calls {
		return model.FinishToolCalls, nil
	}
	if t.finish == genai.FinishReasonOther && t.text.Len() == 0 {
		return "", model.Errorf(model.ErrUnavailable, "the model answered nothing: %s", t.finish)
	}
	return model.FinishStop, nil
}

// takenIDs returns the ids of the conversation's calls.
func takenIDs(req *model.Request) map[string]bool {
	ids := make(map[string]bool)
	for _, m := range req.Messages {
		for _, c := range m.ToolCalls {
			ids[c.ID] = true
		}
	}
	return ids
}

// toolCall returns the next call of the answer. If the model has given it no
// id, it gets one that is unique in the conversation.
func toolCall(f *genai.FunctionCall, exact []json.RawMessage, next int, ids map[string]bool) (call model.ToolCall, given bool, err error) {
	if f.Name == "" {
		return call, false, model.Errorf(model.ErrUnavailable, "the answer has a tool call without a name")
	}
	call = model.ToolCall{ID: f.ID, Name: f.Name}
	if given = f.ID != "" && !ids[f.ID]; !given {
		for n := len(ids) + 1; ; n++ {
			if call.ID = fmt.Sprintf("call_%d", n); !ids[call.ID] {
				break
			}
		}
	}
	ids[call.ID] = true
	switch {
	case next < len(exact) && len(exact[next]) > 0:
		call.Arguments = model.Arguments(string(exact[next]))
	case f.Args == nil:
		call.Arguments = json.RawMessage("{}")
	default:
		if call.Arguments, err = json.Marshal(f.Args); err != nil {
			return call, false, model.Errorf(model.ErrUnavailable, "the arguments of a tool call: %w", err)
		}
	}
	return call, given, nil
}

// exactArguments returns the arguments of the answer's calls in order, byte for
// byte: the SDK decodes their numbers as float64.
func exactArguments(answer []byte) (all []json.RawMessage) {
	add := func(doc []byte) error {
		var res struct {
			Candidates []struct {
				Index   int
				Content struct {
					Parts []struct {
						Thought      bool
						FunctionCall *struct{ Args json.RawMessage }
					}
				}
			}
		}
		if err := json.Unmarshal(doc, &res); err != nil {
			return err
		}
		for _, c := range res.Candidates {
			if c.Index != 0 {
				continue
			}
			for _, p := range c.Content.Parts {
				if p.FunctionCall != nil && !p.Thought {
					all = append(all, bytes.Clone(p.FunctionCall.Args))
				}
			}
		}
		return nil
	}
	if add(answer) == nil {
		return all
	}
	all = nil
	for line := range bytes.Lines(answer) {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && add(bytes.TrimSpace(data)) != nil {
			return nil
		}
	}
	return all
}

package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

const maxCalls = 256 // tool calls in one turn

// turn is an answer that is being assembled.
type turn struct {
	text    strings.Builder
	refused bool
	calls   []*partialCall
	finish  string
	usage   model.Usage
	model   string
	keep    []string                     // names of the members to keep
	kept    map[string][]json.RawMessage // their pieces
	onDelta func(model.Delta) error
}

type partialCall struct {
	index     int64
	id, name  string
	arguments strings.Builder
}

// read reads an answer: one JSON document or a stream of events.
func (m *Model) read(res *http.Response, stream bool, onDelta func(model.Delta) error) (*turn, error) {
	t := &turn{onDelta: onDelta, keep: m.provider.keep}
	body, whole, err := endpoint.Document(res, stream)
	switch {
	case err != nil:
		return nil, err
	case !whole:
		return t, t.stream(endpoint.NewEvents(res.Body, m.client.MaxBody))
	}
	if err := reported(body); err != nil {
		return nil, err
	}
	var c completion
	if err := endpoint.Decode(body, &c); err != nil {
		return nil, errors.New("the answer is not the JSON of a chat completion")
	}
	return t, t.whole(&c)
}

func (t *turn) whole(c *completion) error {
	if len(c.Choices) == 0 {
		return errors.New("the answer has no choices")
	}
	t.model = string(c.Model)
	t.finish = string(c.Choices[0].FinishReason)
	t.usage = usage(c.Usage)
	return t.addTurn(c.Choices[0].Message, true)
}

// addTurn adds a turn, or a piece of one. In a whole turn, the calls are identified by their index.
func (t *turn) addTurn(raw json.RawMessage, whole bool) error {
	var s said
	if len(raw) == 0 || endpoint.Decode(raw, &s) != nil {
		return nil
	}
	if len(t.keep) > 0 {
		var members map[string]json.RawMessage
		_ = json.Unmarshal(raw, &members) // it is an object
		for _, name := range t.keep {
			t.keepPiece(name, members[name])
		}
	}
	for i, c := range s.ToolCalls {
		var index *int64
		if whole {
			index = new(int64(i))
		} else if c.Index != nil {
			index = new(int64(*c.Index))
		}
		if err := t.call(index, string(c.ID), string(c.Function.Name), string(c.Function.Arguments)); err != nil {
			return err
		}
	}
	t.refused = t.refused || s.Refusal != ""
	more := text(s.Content) + string(s.Refusal)
	t.text.WriteString(more)
	return model.Tell(t.onDelta, more)
}

// stream reads events until [DONE]. It also accepts a stream without [DONE] if the turn has said
// why it finished, and a stream that ends with [DONE] but without a reason if the turn seems
// whole.
func (t *turn) stream(events *endpoint.Events) error {
	for {
		data, err := events.Data(t.finish != "")
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if bytes.Equal(data, []byte("[DONE]")) {
			if t.finish == "" && !t.seemsWhole() {
				return errors.New("the stream ended before the answer was complete")
			}
			return nil
		}
		if len(data) == 0 {
			continue
		}
		if err := reported(data); err != nil {
			return err
		}
		var chunk completion
		if err := endpoint.Decode(data, &chunk); err != nil {
			return errors.New("the stream has an event that is not the JSON of a chunk")
		}
		if err := t.chunk(&chunk); err != nil {
			return err
		}
	}
}

// seemsWhole reports whether a turn that ended with [DONE] and without a reason may be complete:
// some compatible servers and gateways never give a reason. An empty turn was cut off, and so was
// a call whose arguments are missing or not JSON: missing ones would be read as {}.
func (t *turn) seemsWhole() bool {
	for _, c := range t.calls {
		if !json.Valid([]byte(c.arguments.String())) {
			return false
		}
	}
	return t.text.Len() > 0 || len(t.calls) > 0
}

func (t *turn) chunk(c *completion) error {
	if c.Model != "" {
		t.model = string(c.Model)
	}
	if len(c.Usage) > 0 && c.Usage[0] == '{' {
		t.usage = usage(c.Usage)
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		if choice.FinishReason != "" {
			t.finish = string(choice.FinishReason)
		}
		if err := t.addTurn(choice.Delta, false); err != nil {
			return err
		}
	}
	return nil
}

// text returns the text of a content. Some models send a list of parts, of which the thoughts are
// not part of the answer.
func text(content json.RawMessage) string {
	if !bytes.HasPrefix(content, []byte("[")) {
		var t endpoint.Text
		_ = endpoint.Decode(content, &t) // a Text accepts any value
		return string(t)
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type == "text" {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// usage converts token counts to those of package model. Some servers do not include thoughts in
// the count of the completion.
func usage(raw json.RawMessage) model.Usage {
	var c counts
	if len(raw) == 0 || endpoint.Decode(raw, &c) != nil {
		return model.Usage{}
	}
	out := model.Usage{
		InputTokens:       int64(c.Prompt),
		OutputTokens:      int64(c.Completion),
		CachedInputTokens: int64(c.Prompts.Cached),
		CacheWriteTokens:  int64(c.Prompts.Write),
	}
	if out.CachedInputTokens == 0 {
		out.CachedInputTokens = int64(c.Hit)
	}
	if r := c.Completions.Reasoning; r > 0 && c.Total == c.Prompt+c.Completion+r {
		out.OutputTokens += int64(r)
	}
	return out
}

// call adds a piece of a tool call. Pieces with the same index belong together. If a server sends
// no index, or one index for all calls, the ids distinguish the calls. Without ids, a piece with a
// name begins a call. A piece without a name never begins a call, because some servers give each
// piece another id.
func (t *turn) call(index *int64, id, name, arguments string) error {
	at := int64(0)
	if index != nil {
		at = *index
	}
	var c *partialCall // the last call with this index, or the one with this id
	for _, known := range t.calls {
		if known.index == at && (c == nil || name != "" || c.id == "" || c.id != id) {
			c = known
		}
	}
	if c == nil || name != "" && c.name != "" && (id != "" && c.id != "" && id != c.id || index == nil && id+c.id == "") {
		if len(t.calls) == maxCalls {
			return fmt.Errorf("the answer has more than %d tool calls", maxCalls)
		}
		c = &partialCall{index: at}
		t.calls = append(t.calls, c)
	}
	c.id = cmp.Or(c.id, id)
	c.name = cmp.Or(c.name, name)
	c.arguments.WriteString(arguments)
	return nil
}

func (t *turn) response(req *model.Request) (*model.Response, error) {
	if t.finish == "error" || t.finish == "insufficient_system_resource" {
		return nil, model.Errorf(model.ErrUnavailable, "the model broke off with finish reason %s", t.finish)
	}
	res := &model.Response{
		Message: model.Assistant(t.text.String()),
		Finish:  model.FinishStop,
		Usage:   t.usage,
		Model:   t.model,
	}
	res.Model = cmp.Or(res.Model, req.Model)
	ids := model.TakenIDs(req)
	for i, c := range t.calls {
		if c.name == "" {
			return nil, model.Errorf(model.ErrUnavailable, "the answer has a tool call without a name")
		}
		res.Message.ToolCalls = append(res.Message.ToolCalls, model.ToolCall{
			ID: model.FreshID(ids, c.id, i+1), Name: c.name, Arguments: model.Arguments(c.arguments.String())})
	}
	switch {
	case t.finish == "length" || t.finish == "model_length":
		res.Finish = model.FinishLength
	case t.finish == "content_filter" || t.refused:
		res.Finish = model.FinishContentFilter
	case len(t.calls) > 0: // some servers say stop
		res.Finish = model.FinishToolCalls
	}
	return res, nil
}

package anthropic

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

const maxCalls = 256 // tool calls in one turn

// turn is an answer that is being assembled from one message of the provider, or from several if
// the provider pauses.
type turn struct {
	onDelta func(model.Delta) error
	blocks  []*block
	offset  int // index in blocks of the first block of the current message
	stop    string
	model   string
	past    model.Usage // of the earlier messages
	usage   model.Usage // of the current message
}

// block is a block of content that is being assembled.
type block struct {
	kind     string
	id, name string          // of a tool_use
	raw      json.RawMessage // as it began
	text     strings.Builder // of a text
	input    strings.Builder // of a call of this agent's tools or of the server's
	thought  strings.Builder
	sign     strings.Builder
}

func (t *turn) begun() bool { return len(t.blocks) > 0 }

// json returns the complete block in the API's form.
func (b *block) json() json.RawMessage {
	more := map[string]any{}
	if b.kind == "text" {
		more["text"] = b.text.String()
	}
	if b.thought.Len() > 0 {
		more["thinking"] = b.thought.String()
	}
	if b.sign.Len() > 0 {
		more["signature"] = b.sign.String()
	}
	if b.input.Len() > 0 {
		more["input"] = model.ObjectOf(model.Arguments(b.input.String()))
	}
	if len(more) == 0 {
		return b.raw
	}
	members, err := json.Marshal(more)
	if err != nil {
		panic("anthropic: marshal of strings failed: " + err.Error())
	}
	merged, err := model.Merge(b.raw, members)
	if err != nil {
		return b.raw
	}
	return merged
}

// read reads an answer: one JSON document, or a stream of events of at most most bytes each.
func (t *turn) read(res *http.Response, most int64) error {
	t.past, t.usage = t.past.Add(t.usage), model.Usage{}
	t.offset, t.stop = len(t.blocks), ""
	if res.StatusCode >= 300 {
		return fmt.Errorf("the server answers with status %d, a redirect; it is not followed", res.StatusCode)
	}
	body, whole, err := endpoint.Document(res, t.onDelta != nil)
	switch {
	case err != nil:
		return err
	case !whole:
		return t.stream(endpoint.NewEvents(res.Body, most))
	}
	if err := reported(body); err != nil {
		return err
	}
	var m answer
	if endpoint.Decode(body, &m) != nil || m.Role != assistant {
		return errors.New("the answer is not the JSON of a message")
	}
	return t.whole(&m)
}

func (t *turn) whole(m *answer) error {
	t.model, t.stop = string(m.Model), string(m.StopReason)
	t.count(&m.Usage)
	for i, c := range m.Content {
		if err := t.begin(int64(i), c); err != nil {
			return err
		}
	}
	return nil
}

// stream reads events until message_stop. It also accepts a stream that ends without message_stop
// after the message has given its stop reason.
func (t *turn) stream(events *endpoint.Events) error {
	for {
		data, err := events.Data(t.stop != "")
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if len(data) == 0 {
			continue
		}
		if err := reported(data); err != nil {
			return err
		}
		var e event
		if endpoint.Decode(data, &e) != nil {
			return errors.New("the stream has an event that is not the JSON of one")
		}
		switch {
		case e.Type != "message_stop":
		case t.stop != "":
			return nil
		default:
			return fmt.Errorf("the stream broke off: %w", io.ErrUnexpectedEOF)
		}
		if err := t.event(&e); err != nil {
			return err
		}
	}
}

func (t *turn) event(e *event) error {
	switch e.Type {
	case "message_start":
		t.model = string(e.Message.Model)
		t.count(&e.Message.Usage)
	case "message_delta":
		if e.Delta.StopReason != "" {
			t.stop = string(e.Delta.StopReason)
		}
		// Its counts are totals; it leaves out counts that do not apply.
		if e.Usage.Input != nil {
			t.count(&e.Usage)
		} else {
			t.usage.OutputTokens = max(t.usage.OutputTokens, int64(e.Usage.Output))
		}
	case "content_block_start":
		return t.begin(int64(e.Index), e.ContentBlock)
	case "content_block_delta":
		return t.delta(e)
	}
	return nil // ping, content_block_stop, and unknown types
}

func (t *turn) count(c *counts) {
	var input endpoint.Count
	if c.Input != nil {
		input = *c.Input
	}
	t.usage = model.Usage{
		InputTokens:       int64(input + c.Created + c.Read),
		OutputTokens:      int64(c.Output),
		CachedInputTokens: int64(c.Read),
		CacheWriteTokens:  int64(c.Created),
	}
}

// begin adds a block with the content that it begins with.
func (t *turn) begin(index int64, raw json.RawMessage) error {
	if index != int64(len(t.blocks)-t.offset) {
		return errors.New("the answer has a block whose index is not the next one")
	}
	var c struct {
		Type, ID, Name, Text string
		Input                json.RawMessage
	}
	if json.Unmarshal(raw, &c) != nil || c.Type == "" {
		return errors.New("the answer has a block without a type, or one that is no object")
	}
	b := &block{kind: c.Type, id: c.ID, name: c.Name, raw: slices.Clone(raw)}
	t.blocks = append(t.blocks, b)
	switch c.Type {
	case "tool_use":
		calls := 0
		for _, b := range t.blocks {
			if b.kind == "tool_use" {
				calls++
			}
		}
		if calls > maxCalls {
			return fmt.Errorf("the answer has more than %d tool calls", maxCalls)
		}
	case "text":
		return t.append(b, c.Text)
	}
	return nil
}

func (t *turn) delta(e *event) error {
	at := int64(e.Index) + int64(t.offset)
	if e.Index < 0 || at >= int64(len(t.blocks)) {
		return errors.New("the stream has a piece of a block that has not begun")
	}
	b := t.blocks[at]
	switch e.Delta.Type {
	case "text_delta":
		if b.kind != "text" {
			return errors.New("the stream has text in a block that is not of type text")
		}
		return t.append(b, string(e.Delta.Text))
	case "input_json_delta":
		b.input.WriteString(string(e.Delta.PartialJSON))
	case "thinking_delta":
		b.thought.WriteString(string(e.Delta.Thinking))
	case "signature_delta":
		b.sign.WriteString(string(e.Delta.Signature))
	}
	return nil
}

func (t *turn) append(b *block, text string) error {
	b.text.WriteString(text)
	return model.Tell(t.onDelta, text)
}

// arguments returns the arguments of a call: the streamed ones, or those that the block began with.
func (b *block) arguments() (json.RawMessage, error) {
	if b.input.Len() > 0 {
		return model.Arguments(b.input.String()), nil
	}
	var c struct{ Input json.RawMessage }
	if err := json.Unmarshal(b.raw, &c); err != nil {
		return nil, err
	}
	return model.Arguments(string(c.Input)), nil
}

// response converts the turn to a Response of package model.
func (a *ask) response() (*model.Response, error) {
	t := a.turn
	res := &model.Response{Message: model.Assistant(""), Finish: model.FinishStop, Usage: t.past.Add(t.usage), Model: t.model, Provider: adapter, Dropped: a.dropped}
	slices.Sort(res.Dropped)
	res.Model = cmp.Or(res.Model, a.req.Model)
	var text strings.Builder
	var pieces []model.Piece
	ids := model.TakenIDs(a.req)
	for i, b := range t.blocks {
		switch b.kind {
		case "text":
			text.WriteString(b.text.String())
			pieces = append(pieces, model.Piece{Text: b.text.String()})
			continue
		case "tool_use":
		default:
			pieces = append(pieces, model.Piece{Raw: b.json()})
			continue
		}
		arguments, err := b.arguments()
		if err != nil || b.name == "" {
			return nil, model.Errorf(model.ErrUnavailable, "the answer has a tool call without a name")
		}
		call := model.ToolCall{ID: model.FreshID(ids, b.id, i+1), Name: b.name, Arguments: arguments}
		pieces = append(pieces, model.Piece{Call: &call})
		res.Message.ToolCalls = append(res.Message.ToolCalls, call)
	}
	res.Message.Content = text.String()
	res.Message.Provider = model.PackPieces(adapter, a.req.Model, pieces)
	switch {
	case t.stop == stopTokens || t.stop == stopWindow:
		res.Finish = model.FinishLength
	case t.stop == stopRefusal:
		res.Finish = model.FinishContentFilter
	case len(res.Message.ToolCalls) > 0:
		res.Finish = model.FinishToolCalls
	}
	return res, nil
}

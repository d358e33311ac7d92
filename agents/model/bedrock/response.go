package bedrock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aws/smithy-go/eventstream"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

const (
	maxCalls  = 256          // tool calls in one turn
	maxBlocks = 4 * maxCalls // a block is searched for linearly
)

// turn is an answer that is being assembled.
type turn struct {
	onDelta func(model.Delta) error
	blocks  []*block
	calls   int
	stop    string
	usage   model.Usage
}

// block is a block of content that is being assembled: text, a call, or a
// thought.
type block struct {
	index     int64
	text      strings.Builder
	call      *model.ToolCall
	arguments strings.Builder

	thinks        bool
	thought, sign strings.Builder
	redacted      []byte
}

// kept returns a thought in the form that is stored in the conversation.
func (b *block) kept() (json.RawMessage, error) {
	t := thought{Signature: b.sign.String(), Redacted: b.redacted}
	if b.redacted == nil {
		t.Text = new(b.thought.String())
	}
	return json.Marshal(t)
}

// whole reads the answer of Converse.
func (t *turn) whole(body io.Reader) error {
	raw, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	var a answer
	if endpoint.Decode(raw, &a) != nil {
		return errors.New("the answer is not the JSON of Converse")
	}
	if a.Output.Message == nil || a.Output.Message.Content == nil {
		return errors.New("the answer is no message")
	}
	t.stop = a.StopReason
	t.count(&a.Usage)
	for i, c := range a.Output.Message.Content {
		b, err := t.at(int64(i))
		if err != nil {
			return err
		}
		if err := t.content(b, &c); err != nil {
			return err
		}
	}
	return nil
}

// content adds a complete block of content to a block.
func (t *turn) content(b *block, c *content) error {
	switch {
	case c.Citations != nil:
		for _, part := range c.Citations.Content {
			if err := t.append(b, part.Text); err != nil {
				return err
			}
		}
	case c.ToolUse != nil:
		if err := t.begin(b, c.ToolUse); err != nil {
			return err
		}
		b.arguments.Write(c.ToolUse.Input)
	case c.Reasoning != nil:
		b.thinks, b.redacted = true, c.Reasoning.Redacted
		if r := c.Reasoning.Text; r != nil {
			b.thought.WriteString(r.Text)
			b.sign.WriteString(r.Signature)
		}
	default:
		return t.append(b, c.Text)
	}
	return nil
}

var errBroken = errors.New("the stream broke off")

// stream reads the events of ConverseStream until the body ends. A body that ends before the turn
// says why it stopped has broken off; a failure after that does not matter.
func (t *turn) stream(body io.Reader, to *access) error {
	frames := eventstream.NewDecoder()
	var buffer []byte
	for {
		frame, err := frames.Decode(body, buffer)
		switch {
		case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, model.ErrAnswerTooLarge):
			return err
		case err != nil && t.stop != "":
			return nil
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
			fallthrough
		case err != nil:
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		buffer = frame.Payload
		err = t.frame(&frame, to)
		var callback model.CallbackError
		switch {
		case errors.As(err, &callback), err != nil && t.stop == "":
			return err
		case err != nil:
			return nil
		}
	}
}

// frame reads an event, or an error that ends the stream.
func (t *turn) frame(f *eventstream.Message, to *access) error {
	name := func(header string) string {
		if v := f.Headers.Get(header); v != nil {
			return v.String()
		}
		return ""
	}
	switch name(":message-type") {
	case "exception": // its name begins with a small letter, unlike that of an answer
		code := plainCode(name(":exception-type"), f.Payload)
		if code != "" {
			code = strings.ToUpper(code[:1]) + code[1:]
		}
		return &report{code: code, message: messageOf(f.Payload), secrets: to.secrets}
	case "error":
		return &report{code: plainCode(name(":error-code"), nil), message: name(":error-message"), secrets: to.secrets}
	case "event":
	default:
		return nil
	}
	var e event
	if endpoint.Decode(f.Payload, &e) != nil {
		return fmt.Errorf("%w: it has an event that is not the JSON of one", errBroken)
	}
	switch name(":event-type") {
	case "contentBlockStart":
		if e.Start.ToolUse != nil {
			b, err := t.at(e.Index)
			if err != nil {
				return err
			}
			return t.begin(b, e.Start.ToolUse)
		}
	case "contentBlockDelta":
		b, err := t.at(e.Index)
		if err != nil {
			return err
		}
		return t.delta(b, &e)
	case "messageStop":
		t.stop = e.StopReason
	case "metadata":
		t.count(&e.Usage)
	}
	return nil
}

func (t *turn) delta(b *block, e *event) error {
	b.arguments.WriteString(e.Delta.ToolUse.Input)
	if r := e.Delta.Reasoning; r != nil {
		b.thinks = true
		b.thought.WriteString(r.Text)
		b.sign.WriteString(r.Signature)
		b.redacted = append(b.redacted, r.Redacted...)
	}
	return t.append(b, e.Delta.Text)
}

// at returns the block with an index, and starts it if necessary.
func (t *turn) at(index int64) (*block, error) {
	for i := len(t.blocks) - 1; i >= 0; i-- {
		if t.blocks[i].index == index {
			return t.blocks[i], nil
		}
	}
	if len(t.blocks) == maxBlocks {
		return nil, fmt.Errorf("the answer has more than %d blocks", maxBlocks)
	}
	b := &block{index: index}
	t.blocks = append(t.blocks, b)
	return b, nil
}

func (t *turn) begin(b *block, u *toolUse) error {
	if u.Name == "" {
		return errors.New("the answer has a tool call without a name")
	}
	if t.calls++; t.calls > maxCalls {
		return fmt.Errorf("the answer has more than %d tool calls", maxCalls)
	}
	b.call = &model.ToolCall{ID: u.ID, Name: u.Name}
	return nil
}

func (t *turn) append(b *block, text string) error {
	b.text.WriteString(text)
	return model.Tell(t.onDelta, text)
}

func (t *turn) count(c *counts) {
	t.usage = model.Usage{
		InputTokens:       int64(c.Input + c.Read + c.Created),
		OutputTokens:      int64(c.Output),
		CachedInputTokens: int64(c.Read),
		CacheWriteTokens:  int64(c.Created),
	}
}

// response returns the turn. The API does not report which model answered.
func (a *ask) response() (*model.Response, error) {
	t := a.turn
	res := &model.Response{Message: model.Assistant(""), Finish: model.FinishStop, Usage: t.usage, Model: a.req.Model, Provider: adapter, Dropped: a.dropped}
	slices.Sort(res.Dropped)
	var text strings.Builder
	var pieces []model.Piece
	ids := model.TakenIDs(a.req)
	slices.SortStableFunc(t.blocks, func(x, y *block) int { return cmp.Compare(x.index, y.index) })
	for i, b := range t.blocks {
		if b.text.Len() > 0 {
			text.WriteString(b.text.String())
			pieces = append(pieces, model.Piece{Text: b.text.String()})
		}
		if b.thinks {
			kept, err := b.kept()
			if err != nil {
				return nil, model.Errorf(model.ErrUnavailable, "keep a thought: %w", err)
			}
			pieces = append(pieces, model.Piece{Raw: kept})
		}
		if b.call == nil {
			continue
		}
		b.call.Arguments = model.Arguments(b.arguments.String())
		b.call.ID = model.FreshID(ids, b.call.ID, i+1)
		pieces = append(pieces, model.Piece{Call: b.call})
		res.Message.ToolCalls = append(res.Message.ToolCalls, *b.call)
	}
	res.Message.Content = text.String()
	res.Message.Provider = model.PackPieces(adapter, a.req.Model, pieces)
	switch t.stop {
	case stopTokens, stopWindow:
		res.Finish = model.FinishLength
	case stopGuardrail, stopFiltered, stopRefusal:
		res.Finish = model.FinishContentFilter
	case stopOutput, stopToolUse:
		return nil, model.Errorf(model.ErrUnavailable, "the model's output was malformed (%s)", t.stop)
	default:
		if len(res.Message.ToolCalls) > 0 {
			res.Finish = model.FinishToolCalls
		}
	}
	return res, nil
}

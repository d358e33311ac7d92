package bedrock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/schemas"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/aws/smithy-go/transport/http/protocol/restjson1"

	"github.com/aeemesh/aeemesh/agents/model"
)

const maxCalls = 256 // tool calls in one turn

// turn is an answer that is being assembled.
type turn struct {
	onDelta func(model.Delta) error
	blocks  []*block
	calls   int
	stop    types.StopReason
	usage   model.Usage
}

// block is a block of content that is being assembled: text, a call, or a
// thought.
type block struct {
	index     int32
	text      strings.Builder
	call      *model.ToolCall
	arguments strings.Builder

	thinks        bool
	thought, sign strings.Builder
	redacted      []byte
}

// kept returns a thought in the form that is stored in the conversation.
func (b *block) kept() (json.RawMessage, error) {
	t := thought{Redacted: b.redacted}
	if b.redacted == nil {
		t.Text = aws.String(b.thought.String())
	}
	if b.sign.Len() > 0 {
		t.Signature = aws.String(b.sign.String())
	}
	return json.Marshal(t)
}

// send sends the request and reads the answer.
func (a *ask) send(ctx context.Context, client *bedrockruntime.Client, sign func(*bedrockruntime.Options)) error {
	in := a.input()
	if a.turn.onDelta == nil || a.refused[streaming] != 0 {
		out, err := client.Converse(ctx, in, sign)
		if err != nil {
			return err
		}
		return a.turn.whole(out)
	}
	out, err := client.ConverseStream(ctx, streamInput(in), sign, ownProtocol)
	if err != nil {
		return err
	}
	events := out.GetStream()
	defer events.Close()
	for e := range events.Events() {
		if err := a.turn.event(e); err != nil {
			return err
		}
	}
	switch err := events.Err(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && a.turn.stop == "":
		return fmt.Errorf("%w: %w", errBroken, err)
	case a.turn.stop == "":
		return fmt.Errorf("%w: %w", errBroken, io.ErrUnexpectedEOF)
	}
	return nil
}

var errBroken = errors.New("the stream broke off")

// ownProtocol gives a stream its own codec. Concurrent streams that share their
// client's codec write to it at the same time (github.com/aws/smithy-go issue
// 714).
func ownProtocol(o *bedrockruntime.Options) {
	o.Protocol = restjson1.New(schemas.AmazonBedrockFrontendService)
}

func (t *turn) whole(out *bedrockruntime.ConverseOutput) error {
	answer, ok := out.Output.(*types.ConverseOutputMemberMessage)
	if !ok {
		return errors.New("the answer is no message")
	}
	t.stop = out.StopReason
	t.count(out.Usage)
	for i, c := range answer.Value.Content {
		b := t.at(int32(i))
		switch c := c.(type) {
		case *types.ContentBlockMemberText:
			if err := t.append(b, c.Value); err != nil {
				return err
			}
		case *types.ContentBlockMemberCitationsContent:
			for _, part := range c.Value.Content {
				if said, ok := part.(*types.CitationGeneratedContentMemberText); ok {
					if err := t.append(b, said.Value); err != nil {
						return err
					}
				}
			}
		case *types.ContentBlockMemberToolUse:
			if err := t.begin(b, c.Value.ToolUseId, c.Value.Name); err != nil {
				return err
			}
			if c.Value.Input != nil {
				arguments, err := c.Value.Input.MarshalSmithyDocument()
				if err != nil {
					return errors.New("the answer has a call whose arguments are not JSON")
				}
				b.arguments.Write(arguments)
			}
		case *types.ContentBlockMemberReasoningContent:
			b.thinks = true
			switch r := c.Value.(type) {
			case *types.ReasoningContentBlockMemberReasoningText:
				b.thought.WriteString(aws.ToString(r.Value.Text))
				b.sign.WriteString(aws.ToString(r.Value.Signature))
			case *types.ReasoningContentBlockMemberRedactedContent:
				b.redacted = r.Value
			}
		}
	}
	return nil
}

func (t *turn) event(e types.ConverseStreamOutput) error {
	switch e := e.(type) {
	case *types.ConverseStreamOutputMemberContentBlockStart:
		if call, ok := e.Value.Start.(*types.ContentBlockStartMemberToolUse); ok {
			return t.begin(t.at(aws.ToInt32(e.Value.ContentBlockIndex)), call.Value.ToolUseId, call.Value.Name)
		}
	case *types.ConverseStreamOutputMemberContentBlockDelta:
		return t.delta(t.at(aws.ToInt32(e.Value.ContentBlockIndex)), e.Value.Delta)
	case *types.ConverseStreamOutputMemberMessageStop:
		t.stop = e.Value.StopReason
	case *types.ConverseStreamOutputMemberMetadata:
		t.count(e.Value.Usage)
	}
	return nil
}

func (t *turn) delta(b *block, d types.ContentBlockDelta) error {
	switch d := d.(type) {
	case *types.ContentBlockDeltaMemberText:
		return t.append(b, d.Value)
	case *types.ContentBlockDeltaMemberToolUse:
		b.arguments.WriteString(aws.ToString(d.Value.Input))
	case *types.ContentBlockDeltaMemberReasoningContent:
		b.thinks = true
		switch r := d.Value.(type) {
		case *types.ReasoningContentBlockDeltaMemberText:
			b.thought.WriteString(r.Value)
		case *types.ReasoningContentBlockDeltaMemberSignature:
			b.sign.WriteString(r.Value)
		case *types.ReasoningContentBlockDeltaMemberRedactedContent:
			b.redacted = append(b.redacted, r.Value...)
		}
	}
	return nil
}

// at returns the block with an index, and starts it if necessary.
func (t *turn) at(index int32) *block {
	for i := len(t.blocks) - 1; i >= 0; i-- {
		if t.blocks[i].index == index {
			return t.blocks[i]
		}
	}
	b := &block{index: index}
	t.blocks = append(t.blocks, b)
	return b
}

func (t *turn) begin(b *block, id, name *string) error {
	if aws.ToString(name) == "" {
		return errors.New("the answer has a tool call without a name")
	}
	if t.calls++; t.calls > maxCalls {
		return fmt.Errorf("the answer has more than %d tool calls", maxCalls)
	}
	b.call = &model.ToolCall{ID: aws.ToString(id), Name: *name}
	return nil
}

func (t *turn) append(b *block, text string) error {
	b.text.WriteString(text)
	return model.Tell(t.onDelta, text)
}

func (t *turn) count(u *types.TokenUsage) {
	if u == nil {
		return
	}
	n := func(v *int32) int64 { return int64(aws.ToInt32(v)) }
	t.usage = model.Usage{
		InputTokens:       n(u.InputTokens) + n(u.CacheReadInputTokens) + n(u.CacheWriteInputTokens),
		OutputTokens:      n(u.OutputTokens),
		CachedInputTokens: n(u.CacheReadInputTokens),
		CacheWriteTokens:  n(u.CacheWriteInputTokens),
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
	slices.SortStableFunc(t.blocks, func(x, y *block) int { return int(x.index) - int(y.index) })
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
	case types.StopReasonMaxTokens, types.StopReasonModelContextWindowExceeded:
		res.Finish = model.FinishLength
	case types.StopReasonGuardrailIntervened, types.StopReasonContentFiltered, "refusal":
		res.Finish = model.FinishContentFilter
	case types.StopReasonMalformedModelOutput, types.StopReasonMalformedToolUse:
		return nil, model.Errorf(model.ErrUnavailable, "the model's output was malformed (%s)", t.stop)
	default:
		if len(res.Message.ToolCalls) > 0 {
			res.Finish = model.FinishToolCalls
		}
	}
	return res, nil
}

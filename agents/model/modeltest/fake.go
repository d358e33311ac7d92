package modeltest

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/aeemesh/aeemesh/agents/model"
)

// Turn is one scripted turn of a model.
type Turn struct {
	Text  string           // the content
	Calls []model.ToolCall // the tool calls
	Usage model.Usage      // the usage that the provider reports

	// Finish is why the turn ends. Default: FinishToolCalls with calls, else FinishStop.
	Finish model.Finish

	// Fail makes the turn fail. If Text is not empty and the caller streams, the turn fails after
	// Text was streamed, as a stream that breaks off.
	Fail *model.Error

	// Hang makes the turn wait until its context ends.
	Hang bool
}

// Fake is a Model that plays its turns. The zero Fake has none; use [New].
type Fake struct {
	turns []Turn

	mu       sync.Mutex
	requests []*model.Request
}

// New returns a Fake that plays turns[n] for a conversation with n assistant messages, and fails
// with ErrBadRequest after the last turn.
func New(turns ...Turn) *Fake { return &Fake{turns: slices.Clone(turns)} }

// Requests returns deep copies of the valid requests so far, in order of
// arrival.
func (f *Fake) Requests() []*model.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*model.Request, len(f.requests))
	for i, r := range f.requests {
		out[i] = Clone(r)
	}
	return out
}

// Generate plays a turn.
func (f *Fake) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.requests = append(f.requests, Clone(req))
	f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := AssistantTurns(req)
	if n >= len(f.turns) {
		return nil, model.Errorf(model.ErrBadRequest, "the fake has %d turns, and the conversation asks for one more", len(f.turns))
	}
	turn := f.turns[n]
	if onDelta != nil {
		for _, piece := range Words(turn.Text) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := onDelta(model.Delta{Text: piece}); err != nil {
				return nil, err
			}
		}
	}
	if turn.Hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if turn.Fail != nil {
		fail := *turn.Fail
		return nil, &fail
	}
	finish := cmp.Or(turn.Finish, model.FinishStop)
	if turn.Finish == "" && len(turn.Calls) > 0 {
		finish = model.FinishToolCalls
	}
	return &model.Response{
		Message: model.Assistant(turn.Text, cloneCalls(turn.Calls)...),
		Finish:  finish,
		Usage:   turn.Usage,
		Model:   req.Model,
	}, nil
}

// AssistantTurns counts the assistant messages of a request, which is the number of the requested
// turn, from 0.
func AssistantTurns(req *model.Request) int {
	n := 0
	for _, m := range req.Messages {
		if m.Role == model.RoleAssistant {
			n++
		}
	}
	return n
}

// Words splits a text after its spaces. The pieces concatenate to the text, and none is empty.
func Words(text string) []string {
	if text == "" {
		return nil
	}
	pieces := strings.SplitAfter(text, " ")
	if pieces[len(pieces)-1] == "" {
		pieces = pieces[:len(pieces)-1]
	}
	return pieces
}

// Clone returns a deep copy of a request, without its Fit.
func Clone(r *model.Request) *model.Request {
	c := *r
	c.Fit, c.Avoid = nil, slices.Clone(r.Avoid)
	c.Messages = slices.Clone(r.Messages)
	for i := range c.Messages {
		c.Messages[i].ToolCalls = cloneCalls(c.Messages[i].ToolCalls)
		c.Messages[i].Provider = slices.Clone(c.Messages[i].Provider)
	}
	c.Tools = slices.Clone(r.Tools)
	for i := range c.Tools {
		c.Tools[i].Parameters = slices.Clone(c.Tools[i].Parameters)
	}
	c.Format.Schema = slices.Clone(r.Format.Schema)
	p := &c.Params
	p.Temperature, p.TopP = clonePtr(p.Temperature), clonePtr(p.TopP)
	p.FrequencyPenalty, p.PresencePenalty = clonePtr(p.FrequencyPenalty), clonePtr(p.PresencePenalty)
	p.Seed, p.Stop, p.Extended = clonePtr(p.Seed), slices.Clone(p.Stop), slices.Clone(p.Extended)
	return &c
}

func cloneCalls(calls []model.ToolCall) []model.ToolCall {
	calls = slices.Clone(calls)
	for i := range calls {
		calls[i].Arguments = slices.Clone[json.RawMessage](calls[i].Arguments)
	}
	return calls
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

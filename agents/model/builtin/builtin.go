package builtin

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/pause"
)

// ProviderID is the model.provider_id of AAIF documents that use this package.
const ProviderID = "builtin"

// The models, as Request.Model and AAIF model.preferred name them.
const (
	Echo   = "echo"
	Script = "script"
	Filler = "filler"
)

// Model is the offline model. The zero value is ready.
type Model struct{}

// New returns the offline model.
func New() *Model { return &Model{} }

// answer is a complete turn before it is streamed and returned.
type answer struct {
	text  string
	calls []model.ToolCall
	delay time.Duration // before it
	pace  time.Duration // between streamed words
	fail  *model.Error
	usage *model.Usage
}

// Generate generates a turn by the model that Request.Model names: [Echo],
// [Script] or [Filler].
func (m *Model) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	return m.generate(ctx, req, "", onDelta)
}

// Continue continues a turn; see [model.Continuer]. All models repeat the same
// text, so it always works unless the conversation is another one. It omits the
// delay before the turn and the pauses in the text that was streamed already.
func (m *Model) Continue(ctx context.Context, req *model.Request, told string, onDelta func(model.Delta) error) (*model.Response, error) {
	return m.generate(ctx, req, told, onDelta)
}

func (*Model) generate(ctx context.Context, req *model.Request, told string, onDelta func(model.Delta) error) (*model.Response, error) {
	if err := cmp.Or(req.Validate(), ctx.Err()); err != nil {
		return nil, err
	}
	var a answer
	var err error
	switch req.Model {
	case Echo:
		a, err = echo(req)
	case Script:
		a, err = play(ctx, req)
	case Filler:
		a, err = fill(req)
	default:
		err = model.Errorf(model.ErrBadRequest, "model %q: the builtin provider has %q, %q and %q", req.Model, Echo, Script, Filler)
	}
	if err != nil {
		return nil, err
	}
	rest, ok := strings.CutPrefix(a.text, told)
	switch {
	case !ok:
		return nil, model.ErrNotContinued
	case told != "":
		a.delay = 0
	}
	return a.give(ctx, req, rest, onDelta)
}

func echo(req *model.Request) (answer, error) {
	for i := len(req.Messages) - 1; i >= 0; i-- {
		if m := req.Messages[i]; m.Role == model.RoleUser {
			return answer{text: m.Content}, nil
		}
	}
	return answer{}, model.Errorf(model.ErrBadRequest, "messages: echo needs a user message")
}

// give returns the answer, and streams the rest of its text.
func (a *answer) give(ctx context.Context, req *model.Request, rest string, onDelta func(model.Delta) error) (*model.Response, error) {
	if err := wait(ctx, a.delay); err != nil {
		return nil, err
	}
	if onDelta != nil {
		pause := time.Duration(0)
		for piece := range words(rest) {
			if err := wait(ctx, pause); err != nil {
				return nil, err
			}
			if err := onDelta(model.Delta{Text: piece}); err != nil {
				return nil, err
			}
			pause = a.pace
		}
	}
	if a.fail != nil {
		return nil, a.fail
	}
	res := &model.Response{
		Message:  model.Assistant(a.text, a.calls...),
		Finish:   model.FinishStop,
		Usage:    count(req, a),
		Model:    req.Model,
		Provider: ProviderID,
		Priced:   true, // at a price of zero
	}
	if len(a.calls) > 0 {
		res.Finish = model.FinishToolCalls
	}
	return res, nil
}

func wait(ctx context.Context, d time.Duration) error {
	if d > 0 {
		pause.For(ctx, d)
	}
	return ctx.Err()
}

// words yields a text in pieces that end after a space; together they are the
// text.
func words(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for text != "" {
			n := len(text)
			if i := strings.IndexAny(text, " \n\t"); i >= 0 {
				n = i + 1
			}
			if !yield(text[:n]) {
				return
			}
			text = text[n:]
		}
	}
}

// count returns the usage that the script sets, or counts words instead of
// tokens.
func count(req *model.Request, a *answer) model.Usage {
	if a.usage != nil {
		return *a.usage
	}
	var u model.Usage
	for _, m := range req.Messages {
		u.InputTokens += int64(len(strings.Fields(m.Content)))
	}
	u.OutputTokens = int64(len(strings.Fields(a.text)))
	for _, c := range a.calls {
		u.OutputTokens += int64(1 + len(strings.Fields(string(c.Arguments))))
	}
	return u
}

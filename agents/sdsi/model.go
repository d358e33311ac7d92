package sdsi

import (
	"context"
	"encoding/json"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/intents/template"
)

// Filler adapts an agent's model to a [template.Model]: it requests structured output by the
// prompt's JSON Schema.
type Filler struct {
	Model model.Model
	Name  string // of the model, in its provider's notation
}

// Complete implements [template.Model].
func (f Filler) Complete(ctx context.Context, p template.Prompt) (json.RawMessage, error) {
	zero := 0.0
	res, err := f.Model.Generate(ctx, &model.Request{
		Model: f.Name, Messages: []model.Message{model.System(p.Instructions), model.User(p.Text)},
		Format: model.Format{Type: model.FormatJSONSchema, Name: "form", Schema: p.Schema},
		Params: model.Params{Temperature: &zero},
	}, nil)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(model.Unfenced(res.Message.Content)), nil
}

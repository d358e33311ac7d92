package sdsi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
)

// shapeTimeout bounds how long one agent's work waits for the template of the next one.
const shapeTimeout = 2 * time.Second

// Shape makes a payload for another agent's template from an object that one agent has made, so
// that the other agent checks it and need not read it as text. Members without a key in the
// template go into "other". ok is false if the agent has no template or several, if the object does
// not fit, or if "other" has no room for all of it: it is then passed on unchanged.
func (c *Client) Shape(ctx context.Context, entity string, made json.RawMessage) (intent string, shaped json.RawMessage, ok bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(made, &members) != nil || len(members) == 0 {
		return "", nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, shapeTimeout)
	defer cancel()
	t, err := c.Template(ctx, entity, "", "")
	if err != nil {
		return "", nil, false
	}
	known := 0
	for _, k := range t.Keys {
		if members[k.Name] != nil && k.Name != template.Other {
			known++
		}
	}
	// An object with few of the keys is about something else.
	if known == 0 || known*2 < len(members) {
		return "", nil, false
	}
	form, err := template.NewForm(t, template.FormOptions{})
	if err != nil {
		return "", nil, false
	}
	if filled, err := form.Check(made); err != nil || filled.Cut {
		return "", nil, false
	}
	p := template.Payload{SchemaID: t.SchemaID, Payload: made, NoUpdates: true}
	return intents.Exchange, p.Encode(), true
}

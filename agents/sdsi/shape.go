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

// Shape puts an object that one agent has made into the form of another agent's template,
// so that the other one checks it instead of reading it as prose. It reports false if the
// agent has no template, or has several, and if the object does not fit: it then goes on as
// it is. What the template has no key for goes into "other".
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
	// An object that has none of the keys is about something else.
	if known == 0 || known*2 < len(members) {
		return "", nil, false
	}
	form, err := template.NewForm(t, template.FormOptions{})
	if err != nil {
		return "", nil, false
	}
	if _, err := form.Check(made); err != nil {
		return "", nil, false
	}
	p := template.Payload{SchemaID: t.SchemaID, Payload: made, NoUpdates: true}
	return intents.Exchange, p.Encode(), true
}

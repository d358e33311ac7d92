package sdsi

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents/template"
)

func isNotFound(err error) bool {
	var e *envelope.Error
	return errors.As(err, &e) && e.Code == envelope.CodeNotFound && e.FromPeer()
}

// renewed makes a payload for the current version of its template, after an exchange that ended
// with E_NOT_FOUND. The error may be the application's own, for example about a flight, so renewed
// asks the agent whether it knows the version.
func (c *Client) renewed(ctx context.Context, entity string, p template.Payload, o ExchangeOptions) (template.Payload, bool) {
	q, old := c.filledIn(entity, p.SchemaID)
	if old == nil {
		return p, false
	}
	if _, _, err := c.get(ctx, entity, template.GetTask{SchemaID: p.SchemaID}); !isNotFound(err) {
		return p, false
	}
	c.Forget(entity)
	now, err := c.Template(ctx, entity, q.scenario, q.language)
	switch {
	case err != nil || now.SchemaID == p.SchemaID:
		return p, false
	case o.Refill != nil:
		again, err := o.Refill(ctx, now)
		again.NoUpdates = again.NoUpdates || p.NoUpdates
		return again, err == nil
	}
	again := p
	again.SchemaID = now.SchemaID
	return again, sameMeaning(p.Payload, old, now)
}

// filledIn returns the remembered template with a schema_id, and the request that it answers.
func (c *Client) filledIn(entity, schemaID string) (question, *template.Template) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q, have := range c.known {
		if q.entity == entity && have.answer.SchemaID == schemaID {
			return q, have.answer.template(c.now())
		}
	}
	return question{}, nil
}

// sameMeaning reports whether the payload's keys have the same definitions and descriptions in both
// templates, and whether now accepts the payload.
func sameMeaning(payload json.RawMessage, before, now *template.Template) bool {
	var values map[string]json.RawMessage
	if json.Unmarshal(payload, &values) != nil {
		return false
	}
	for name := range values {
		a, b := before.Key(name), now.Key(name)
		if name != template.Other && (a == nil || b == nil || a.Type != b.Type || a.Description != b.Description || !reflect.DeepEqual(a.Value, b.Value)) {
			return false
		}
	}
	form, err := template.NewForm(now, template.FormOptions{})
	if err != nil {
		return false
	}
	_, err = form.Check(payload)
	return err == nil
}

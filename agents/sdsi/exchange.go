package sdsi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state/run"
)

// exchange handles the task of a structured payload (SDSI 3.2, steps 4 and 5). It is called again
// for a durable run that continues, and changes only the task's input. The payload of a run that has
// worked was accepted when it began: like the mesh, exchange no longer refuses it then, though this
// worker may have other templates and schemas. Its effects would remain, and a client that gets
// E_NOT_FOUND would send the payload again.
func (d *Desk) exchange(ctx context.Context, t *mesh.Task, payload json.RawMessage, next mesh.Handler) (json.RawMessage, error) {
	sent, err := template.ParsePayload(payload)
	if err != nil {
		return nil, envelope.Errorf(envelope.CodeInputSchema, "%s", err.Error())
	}
	v, err := d.version(ctx, sent.SchemaID)
	if err != nil && worked(t) {
		return d.goOn(ctx, t, sent, cmp.Or(d.io, handledAs(sent.SchemaID)), err, next)
	}
	if err != nil {
		return nil, d.explain(sent.SchemaID, err)
	}
	learned := d.learned(ctx, v, senderOf(t))
	filled, err := learned.form().Check(sent.Payload)
	if err != nil && worked(t) {
		return d.goOn(ctx, t, sent, v.handled, err, next)
	}
	d.tel.checked(d.cfg.Entity, v, filled, err)
	stored := learned.observe(t.Envelope.ID, sent, filled, err)
	if err != nil {
		return nil, envelope.Errorf(envelope.CodeInputSchema, "%s", err.Error())
	}
	if len(filled.Warnings) > 0 {
		d.log.Log(ctx, d.levelOf(v, filled), "a payload is accepted for now", "id", t.Envelope.ID, "from", t.Envelope.From, "schema_id", v.SchemaID, "why", filled.Warnings)
	}
	input, others, err := learned.input(filled.Values, filled.Other)
	if err != nil { // an invalid default is not the client's fault: only its own values count
		if names := learned.form().Defaults(sent.Payload); len(names) > 0 {
			if bare, besides, misfit := learned.input(template.Without(filled.Values, names...), filled.Other); misfit == nil {
				input, others, err = bare, besides, nil
			}
		}
	}
	if err != nil && worked(t) {
		input, others, err = filled.Values, filled.Other, nil
	}
	if err != nil {
		return nil, err
	}
	t.ServeAs(v.handled, input)
	result, err := next.Handle(withUnmappedInput(ctx, others, learned.values(input)), t)
	if err != nil {
		return nil, err
	}
	var misfit *intents.ValidationError
	if err := d.intents.Validate(v.handled, intents.Result, result); errors.As(err, &misfit) {
		return nil, envelope.Errorf(envelope.CodeOutputSchema, "%s", misfit.Error())
	}
	if stored != nil { // a result confirms that the agent has stored everything
		select {
		case <-stored:
		case <-ctx.Done():
		}
	}
	return learned.suggest(sent, filled, result), nil
}

// worked reports whether a durable run has worked, so that its payload has been accepted.
func worked(t *mesh.Task) bool { return t.Run() != nil && run.Worked(t.Run().View()) }

// goOn continues a run that has worked with its payload as it was sent, because this worker does not
// accept it.
func (d *Desk) goOn(ctx context.Context, t *mesh.Task, sent *template.Payload, handled string, why error, next mesh.Handler) (json.RawMessage, error) {
	d.log.Warn("a run continues, though its payload would not be accepted now", "id", t.Envelope.ID, "from", t.Envelope.From, "schema_id", clip.Text(sent.SchemaID, 128), "why", why)
	t.ServeAs(handled, sent.Payload)
	return next.Handle(ctx, t)
}

// levelOf returns the level of a log line about a payload. Clients decide how many such lines
// there are, so a withdrawn key causes only one warning (SDSI 6.2.3).
func (d *Desk) levelOf(v *version, filled *template.Filled) slog.Level {
	level := slog.LevelInfo
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range filled.Withdrawn {
		if key := v.Scenario + "\n" + name; !d.warned[key] {
			d.warned[key], level = true, slog.LevelWarn
		}
	}
	return level
}

// input returns the values for the handler, and the texts of "other" and of learned keys. The
// values must fit the agent's own input schema, from which the template may have been made; if
// they fit only without "other", the handler does not get that key.
func (l *learned) input(values json.RawMessage, others []string) (json.RawMessage, []string, error) {
	values, others = l.moveUnsupported(values, others)
	if !l.v.held || l.desk.misfit(values) == nil {
		return values, others, nil
	}
	values = template.Without(values, template.Other)
	if misfit := l.desk.misfit(values); misfit != nil {
		return nil, nil, envelope.Errorf(envelope.CodeInputSchema, "%s", misfit.Error())
	}
	return values, others, nil
}

// misfit returns why values do not fit the agent's own input schema, nil if they do.
func (d *Desk) misfit(values json.RawMessage) *intents.ValidationError {
	var misfit *intents.ValidationError
	errors.As(d.intents.Validate(d.io, intents.Task, values), &misfit)
	return misfit
}

type unmappedInputKey struct{}

// unmappedInput are the texts of "other" and the learned keys of a payload.
type unmappedInput struct {
	others  []string
	learned []LearnedValue
}

func withUnmappedInput(ctx context.Context, others []string, learned []LearnedValue) context.Context {
	if len(others)+len(learned) == 0 {
		return ctx
	}
	return context.WithValue(ctx, unmappedInputKey{}, unmappedInput{others, learned})
}

// Others returns, for a handler of an exchange, the texts of the key "other": words of the client
// that fit no key. They are untrusted: a handler that passes them to a model must mark them as
// data.
func Others(ctx context.Context) []string {
	w, _ := ctx.Value(unmappedInputKey{}).(unmappedInput)
	return w.others
}

// A LearnedValue is the value of a learned key.
type LearnedValue struct {
	Key   template.Key
	Value json.RawMessage
}

// Learned returns, for a handler of an exchange, the values of learned keys, in the order of the
// template. The input contains them, too, but a handler that does not know these keys finds them
// only here.
func Learned(ctx context.Context) []LearnedValue {
	w, _ := ctx.Value(unmappedInputKey{}).(unmappedInput)
	return w.learned
}

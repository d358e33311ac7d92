package sdsi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/mesh"
)

// get answers sdsi.schema.get.
func (d *Desk) get(ctx context.Context, t *mesh.Task, payload json.RawMessage) (json.RawMessage, error) {
	var ask template.GetTask
	if err := jsonv2.Unmarshal(payload, &ask); err != nil { // member names are case-sensitive, as in the schema
		return nil, envelope.Errorf(envelope.CodeInputSchema, "the members scenario, schema_id, preferred_language and if_hash are strings, and schema_updates is true or false").WithCause(err)
	}
	v, err := d.wanted(ctx, ask)
	if err != nil {
		return nil, err
	}
	in, _ := v.In(ask.Language)
	answer := template.GetResult{Template: *in}
	if ask.Updates == nil || *ask.Updates {
		l := d.learned(ctx, v, senderOf(t))
		answer.Patches = l.patches(in)
		l.recordSent(answer.Patches)
	}
	if answer.Hash, err = hashOf(answer); err != nil {
		return nil, err
	}
	if ask.IfHash != "" && ask.IfHash == answer.Hash {
		answer.NotModified = true
	}
	return answer.MarshalJSON()
}

// wanted returns the version that a client requests.
func (d *Desk) wanted(ctx context.Context, ask template.GetTask) (*version, error) {
	if ask.SchemaID != "" {
		v, err := d.version(ctx, ask.SchemaID)
		if err == nil && ask.Scenario != "" && ask.Scenario != v.Scenario {
			return nil, envelope.Errorf(envelope.CodeNotFound, "template %s is of scenario %s, not %s", clip.Text(ask.SchemaID, 128), v.Scenario, clip.Text(ask.Scenario, 128))
		}
		return v, d.explain(ask.SchemaID, err)
	}
	if ask.Scenario == "" && len(d.current) == 1 {
		for _, v := range d.current {
			return v, nil
		}
	}
	if v := d.current[ask.Scenario]; v != nil {
		return v, nil
	}
	if ask.Scenario == "" {
		return nil, envelope.Errorf(envelope.CodeNotFound, "name a scenario; %s has %s", d.cfg.Entity, d.scenarioList())
	}
	return nil, envelope.Errorf(envelope.CodeNotFound, "%s has no scenario %s; it has %s", d.cfg.Entity, clip.Text(ask.Scenario, 128), d.scenarioList())
}

// scenarioList lists the scenarios with their current versions.
func (d *Desk) scenarioList() string {
	var b strings.Builder
	for i, name := range d.Scenarios() {
		if i == 10 {
			b.WriteString(" and more (sdsi.schema.list has all)")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(clip.Text(name, 64) + " (" + clip.Text(d.current[name].SchemaID, 64) + ")")
	}
	return b.String()
}

// explain converts the error about a schema_id to the error that the client gets.
func (d *Desk) explain(schemaID string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errUnknown):
		return envelope.Errorf(envelope.CodeNotFound, "%s has no template %s; it has %s", d.cfg.Entity, clip.Text(schemaID, 128), d.scenarioList())
	}
	return envelope.Errorf(envelope.CodeUnavailable, "template %s cannot be read for now: %w", clip.Text(schemaID, 128), err)
}

// list answers sdsi.schema.list.
func (d *Desk) list() (json.RawMessage, error) {
	answer := template.ListResult{Scenarios: []template.Listed{}}
	for _, name := range d.Scenarios() {
		answer.Scenarios = append(answer.Scenarios, d.current[name].Listed())
	}
	return json.Marshal(answer)
}

// hashOf returns the hash that identifies an answer by its content. For an answer without patches
// it is the hash of the template, as in [template.Listed].
func hashOf(answer template.GetResult) (string, error) {
	if len(answer.Patches) == 0 {
		return answer.Template.Hash(), nil
	}
	raw, err := json.Marshal(answer)
	if err == nil {
		raw, err = envelope.Canonical(raw)
	}
	sum := sha256.Sum256(raw)
	return "sha256:" + hex.EncodeToString(sum[:]), err
}

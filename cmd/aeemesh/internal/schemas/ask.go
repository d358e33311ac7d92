package schemas

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/await"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/mesh"
)

// Filling are the flags of a command that fills in a template before it asks.
type Filling struct {
	// Model is the model that fills in; "": the command asks in plain text.
	Model string
	// Durable says that the payload goes over the durable lane, which the session needs then.
	Durable bool
	// Send has the retries, of the questions for the template and of a live task.
	Send mesh.SendOptions

	operator           Operator
	config             string // the operator's, of models
	scenario, language string
	threshold          float64
	show, dryRun       bool
}

// Add adds the flags.
func (f *Filling) Add(flags *pflag.FlagSet, o Operator) {
	f.operator = o
	f.addModel(flags)
	flags.BoolVar(&f.dryRun, "dry-run", false, "print how the text was filled in, and send nothing")
	flags.BoolVar(&f.Durable, "durable", false, "send it over the durable lane")
}

func (f *Filling) addModel(flags *pflag.FlagSet) {
	flags.StringVar(&f.Model, "model", "", "fill in the agent's schema template with this model, `PROVIDER/NAME`, and send that instead of the text; builtin/filler needs no key")
	session.BindEnv(flags, "model", "AEEMESH_MODEL")
	flags.StringVar(&f.config, "config", "", "`FILE` (YAML) with the keys, endpoints and prices of models, as for a worker")
	flags.StringVar(&f.scenario, "scenario", "", "the template's `scenario` (default the agent's only one, or the one that the model chooses)")
	flags.StringVar(&f.language, "language", "", "`language` of the template's descriptions")
	flags.Float64Var(&f.threshold, "threshold", template.DefaultThreshold, "least confidence of a mapping; what is below goes to the key \"other\", and counts as not said")
	flags.BoolVar(&f.show, "show", false, "print how the text was filled in")
}

// Check refuses flags that have no effect without a model.
func (f *Filling) Check(a *session.App, cmd *cobra.Command) error {
	if !(f.threshold >= 0 && f.threshold <= 1) { // NaN is not
		return outcome.Usagef(cmd, "--threshold %v: it is between 0 and 1", f.threshold)
	}
	if f.Model != "" {
		return nil
	}
	for _, name := range []string{"scenario", "language", "threshold", "show", "dry-run", "durable", "config"} {
		if fl := cmd.Flags().Lookup(name); fl != nil && fl.Changed && !a.ByEnv[name] {
			return outcome.Hinted(outcome.Usagef(cmd, "--%s is about filling in a template: it needs --model", name), "builtin/filler needs no key.")
		}
	}
	return nil
}

// Anyone reports whether a command line names a scenario and a text, but no agent.
func (f *Filling) Anyone(args []string) bool {
	return f.scenario != "" && len(args) == 1 && subject.ValidateEntity(args[0]) != nil
}

// client returns a client that asks for templates, again if need be.
func (f *Filling) client(s *session.Session) *sdsi.Client {
	c := sdsi.NewClient(s.Node)
	c.Retry(f.Send.Retries, f.Send.OnRetry)
	return c
}

// Agent returns the agent that has the scenario.
func (f *Filling) Agent(ctx context.Context, cmd *cobra.Command, a *session.App, s *session.Session) (string, error) {
	a.Term.Progress("asking who has %s", f.scenario)
	offers, err := sdsi.NewClient(s.Node).Find(ctx, "", f.scenario, time.Second)
	if err != nil {
		return "", notFound(ctx, err)
	}
	var entities []string
	for _, o := range offers {
		entities = append(entities, o.Entity)
	}
	if len(entities) > 1 {
		return "", outcome.Usagef(cmd, "several agents have the scenario %s: name one of %s", f.scenario, strings.Join(entities, ", "))
	}
	return entities[0], nil
}

// Wanted reports whether an agent is to be asked by a template: if the command line names a
// model, and, if the environment does, where the agent publishes templates. A variable that
// is set for one agent does not make the questions to others fail. Other flags that need a
// template want one, and so does an agent that does not say now whether it publishes some.
func (f *Filling) Wanted(ctx context.Context, s *session.Session, entity string) (bool, error) {
	if f.Model == "" || !s.App.ByEnv["model"] || f.scenario != "" || f.show || f.dryRun || f.Durable {
		return f.Model != "", nil
	}
	_, err := f.client(s).Scenarios(ctx, entity)
	switch {
	case errors.Is(err, sdsi.ErrNone):
		return false, nil
	case err != nil:
		return false, await.Unasked(ctx, s, entity, err)
	}
	return true, nil
}

// Ask fills in the template of an agent with a request, by the model that the user names,
// and sends it. It asks the user once for what is missing, on a terminal.
func (f *Filling) Ask(ctx context.Context, cmd *cobra.Command, s *session.Session, entity, text string) error {
	a := s.App
	m, done, err := f.operator.Filler(cmd, f.config, f.Model)
	if err != nil {
		return err
	}
	defer done()
	client := f.client(s)
	tpl, mapping, err := f.fill(ctx, s, client, m, entity, text)
	if mapping != nil && (f.show || f.dryRun) { // also of a text in which something is missing
		if failed := f.print(a.Term, mapping); failed != nil {
			return failed
		}
	}
	if err != nil || f.dryRun {
		return err
	}
	started := time.Now()
	a.Term.Progress("asking %s", entity)
	got, err := f.exchange(ctx, s, client, entity, template.Payload{SchemaID: mapping.SchemaID, Payload: mapping.Payload, Fragments: mapping.Evidence(tpl)})
	if err != nil {
		return err
	}
	if a.Term.JSON {
		out := map[string]any{"entity": entity, "schema_id": mapping.SchemaID, "payload": mapping.Payload, "result": got.Envelope.Payload, "ms": time.Since(started).Milliseconds()}
		return a.Term.Object(out)
	}
	a.Term.Payload(got.Envelope.Payload)
	if got.Suggestion != nil {
		for _, k := range got.Suggestion.NewKeys {
			if tpl.Key(k.Name) != nil {
				continue
			}
			a.Term.Note("the agent has learned the key %s: %s", term.OneLine(k.Name), term.OneLine(k.Description))
		}
	}
	return nil
}

// exchange sends what was filled in, and waits for the result.
func (f *Filling) exchange(ctx context.Context, s *session.Session, client *sdsi.Client, entity string, p template.Payload) (*sdsi.Exchanged, error) {
	if !f.Durable {
		opts := f.Send
		waiting, stopWondering := await.Watch(ctx, s.App, s.Node, entity, &opts)
		got, err := client.Exchange(waiting, entity, p, sdsi.ExchangeOptions{Send: opts})
		stopWondering()
		if err != nil {
			return nil, await.Unanswered(ctx, s, entity, err)
		}
		return got, nil
	}
	mind := await.WarnUntaken(ctx, s, entity)
	got, err := client.Exchange(ctx, entity, p, sdsi.ExchangeOptions{Durable: true, Submit: mesh.SubmitOptions{OnRetry: await.WarnRetry(s.App.Term)}})
	mind()
	switch {
	case err == nil:
		return got, nil
	case got.Stored.TaskID == "":
		return nil, await.SubmitFailed(got.Task, err)
	case got.Envelope != nil && got.Envelope.Type != envelope.TypeError: // a result that does not fit
		return nil, outcome.SendFailed(ctx, err)
	}
	return nil, await.ResultFailed(ctx, s, got.Task.ID, entity, got.Envelope, err)
}

// fill gets the template of an agent, and fills it in. It asks the user once for what is
// missing, on a terminal; if something still is, it returns an error and the mapping.
func (f *Filling) fill(ctx context.Context, s *session.Session, client *sdsi.Client, m template.Model, entity, text string) (*template.Template, *template.Mapping, error) {
	o := f.options()
	scenario, err := f.scenarioOf(ctx, s, client, m, entity, text, o)
	if err != nil {
		return nil, nil, err
	}
	tpl, err := client.Template(ctx, entity, scenario, f.language)
	if err != nil {
		return nil, nil, noTemplate(ctx, s, entity, inPlainText, err)
	}
	mapping, err := f.fillIn(ctx, s.App, m, tpl, text, o)
	return tpl, mapping, err
}

func (f *Filling) options() template.FillOptions {
	threshold := f.threshold
	threshold = cmp.Or(threshold, -1) // every mapping is taken
	return template.FillOptions{Threshold: threshold, Now: time.Now()}
}

func (f *Filling) fillIn(ctx context.Context, a *session.App, m template.Model, tpl *template.Template, text string, o template.FillOptions) (*template.Mapping, error) {
	a.Term.Progress("filling in %s with %s", tpl.SchemaID, f.Model)
	mapping, err := template.Fill(ctx, m, tpl, text, o)
	if err == nil && len(mapping.Missing) > 0 {
		err = f.askBack(ctx, a, m, tpl, mapping, o)
	}
	return mapping, err
}

const inPlainText = "Without --model it is asked in plain text."

// noTemplate returns the error of asking an agent for its templates.
func noTemplate(ctx context.Context, s *session.Session, entity, hint string, err error) error {
	if errors.Is(err, sdsi.ErrNone) {
		return outcome.Hinted(outcome.NotFound("%s publishes no schema templates", entity), "%s", hint)
	}
	return await.Unasked(ctx, s, entity, err)
}

// scenarioOf returns the scenario to fill in. Of several the model chooses, if it is sure.
func (f *Filling) scenarioOf(ctx context.Context, s *session.Session, client *sdsi.Client, m template.Model, entity, text string, o template.FillOptions) (string, error) {
	if f.scenario != "" {
		return f.scenario, nil
	}
	all, err := client.Scenarios(ctx, entity)
	if err != nil {
		return "", noTemplate(ctx, s, entity, inPlainText, err)
	}
	if len(all) == 1 {
		return all[0].Scenario, nil
	}
	chosen, err := template.Choose(ctx, m, all, text, o)
	if err != nil || chosen != "" {
		return chosen, err
	}
	var names []string
	for _, l := range all {
		names = append(names, l.Scenario)
	}
	return "", outcome.Hinted(fmt.Errorf("%s has several scenarios, and the text does not say which: %s", entity, strings.Join(names, ", ")), "--scenario names one.")
}

// askBack asks the user for the required keys that are missing, if there is a terminal.
func (f *Filling) askBack(ctx context.Context, a *session.App, m template.Model, tpl *template.Template, mapping *template.Mapping, o template.FillOptions) error {
	if !a.Term.JSON && a.Interactive() {
		for _, k := range mapping.Missing {
			a.Term.Say("%s is missing: %s", term.OneLine(k.Name), term.OneLine(k.Description))
		}
		a.Term.Say("What should it be?")
		line, err := bufio.NewReader(io.LimitReader(a.Stdin, template.MaxText)).ReadString('\n')
		if err != nil && line == "" {
			return outcome.ErrInterrupted
		}
		more, err := template.Fill(ctx, m, tpl, strings.TrimSpace(line), o)
		if err != nil {
			return err
		}
		mapping.Add(more)
	}
	if len(mapping.Missing) == 0 {
		return nil
	}
	var lines, names []string
	for _, k := range mapping.Missing {
		names = append(names, k.Name)
		lines = append(lines, term.OneLine(k.Name)+" ("+term.OneLine(k.Description)+")")
	}
	missing := outcome.WithMember(fmt.Errorf("the text does not say what is required: %s", strings.Join(lines, "; ")), "missing", names)
	return outcome.Hinted(missing, "Say it as well; --show prints how the text is filled in.")
}

// print prints a mapping.
func (f *Filling) print(t *term.Terminal, m *template.Mapping) error {
	if t.JSON {
		if !f.dryRun {
			return nil // the result's object has the payload
		}
		return t.Object(m)
	}
	var rows [][]string
	for _, k := range m.Keys {
		rows = append(rows, []string{k.Key, string(k.Value), k.Fragment, fmt.Sprintf("%.2f", k.Confidence)})
	}
	for _, o := range m.Other {
		quoted, err := json.Marshal(o)
		if err != nil {
			return err
		}
		rows = append(rows, []string{template.Other, string(quoted), o, ""})
	}
	for _, r := range m.Rejected {
		t.Note("%s was not taken as %s: %s", term.OneLine(string(r.Value)), r.Key, term.OneLine(r.Why))
	}
	t.Table([]string{"key", "value", "words", "confidence"}, rows)
	return nil
}

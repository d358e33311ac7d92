package schemas

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents/template"
)

func fillCommand(a *session.App, o Operator) *cobra.Command {
	f := Filling{}
	c := session.Connects(&cobra.Command{
		Use:   "fill FILE|ENTITY TEXT...",
		Short: "Fill in a template, and print the payload",
		Long: `Fills in the template of an agent, or of a file, with what a text says, and
prints the payload as "send" takes it. With a file it connects to nothing: so an
author sees how a model understands the descriptions. --show also prints which
words became which value. "-" reads the text from standard input.`,
		Example: `  aeemesh schema fill tram.sdsi.json 'from the harbour, 3 zones' --model builtin/filler --show
  aeemesh schema fill agent.flights 'two to Lisbon on 2027-03-01' --model openai/gpt-4o
  aeemesh send agent.flights "$(aeemesh schema fill agent.flights 'two to Lisbon' --model openai/gpt-4o)"`,
		Args: outcome.Arguments("FILE|ENTITY", "TEXT..."),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if f.Model == "" {
				return outcome.Hinted(outcome.Usagef(cmd, "--model is missing: it fills in the template"), "builtin/filler needs no key.")
			}
			if err := f.Check(a, cmd); err != nil {
				return err
			}
			m, done, err := o.Filler(cmd, f.config, f.Model)
			if err != nil {
				return err
			}
			defer done()
			text, err := a.Text(args[1:])
			if err != nil {
				return err
			}
			if _, err := os.Stat(args[0]); err == nil || strings.HasSuffix(args[0], ".json") || strings.ContainsAny(args[0], `/\`) {
				tpl, err := oneTemplate(args[0])
				if err != nil {
					return err
				}
				if f.scenario != "" && f.scenario != tpl.Scenario {
					return outcome.Usagef(cmd, "--scenario %s: %s is of the scenario %s", f.scenario, args[0], tpl.Scenario)
				}
				if f.language != "" {
					tpl, _ = tpl.In(f.language)
				}
				mapping, err := f.fillIn(ctx, a, m, tpl, text, f.options())
				return f.payload(a, mapping, err)
			}
			if err := subject.ValidateEntity(args[0]); err != nil {
				return outcome.Usagef(cmd, "there is no such file, and %w", err)
			}
			return withNode(a, ctx, cmd, func(ctx context.Context, s *session.Session) error {
				_, mapping, err := f.fill(ctx, s, sdsi.NewClient(s.Node), m, args[0], text)
				return f.payload(a, mapping, err)
			})
		}),
	})
	f.addModel(c.Flags())
	c.Flags().Lookup("model").Usage = "fill in with this model, `PROVIDER/NAME`; builtin/filler needs no key"
	a.AddSignFlags(c.Flags(), session.SignAll)
	return c
}

// payload prints what was filled in.
func (f *Filling) payload(a *session.App, m *template.Mapping, err error) error {
	if m == nil {
		return err
	}
	if f.show {
		if failed := f.print(a.Term, m); failed != nil {
			return failed
		}
	}
	if err != nil {
		return err
	}
	if a.Term.JSON {
		return a.Term.Object(m)
	}
	p := template.Payload{SchemaID: m.SchemaID, Payload: m.Payload}
	a.Term.Line("%s", p.Encode())
	return nil
}

package schemas

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/intents/template"
)

func showCommand(a *session.App) *cobra.Command {
	var language, id string
	var asSchema bool
	c := session.Connects(&cobra.Command{
		Use:   "show ENTITY [SCENARIO]",
		Short: "Show a template: its keys and what they mean",
		Long: `Asks an agent for the template of a scenario, and prints its keys, those of
patches included. --json prints what the agent sent, --json-schema the JSON
Schema of a payload.`,
		Example: `  aeemesh schema show agent.flights
  aeemesh schema show agent.flights flight_booking --language de
  aeemesh schema show agent.flights --id flight_booking_v1 --json

  # the same with the nats CLI:
  nats req aee.ask.agent.flights '{"method":"get_schema_template","params":{"scenario":"flight_booking"}}'`,
		Args:              outcome.Arguments("ENTITY", "[SCENARIO]"),
		ValidArgsFunction: session.CompleteEntities(a, 1),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := checkEntity(cmd, args[0]); err != nil {
				return err
			}
			ask := template.GetTask{SchemaID: id, Scenario: strings.Join(args[1:], ""), Language: language}
			return withNode(a, ctx, cmd, func(ctx context.Context, s *session.Session) error {
				got, reply, err := sdsi.NewClient(s.Node).Get(ctx, args[0], ask)
				if err != nil {
					return noTemplate(ctx, s, args[0], "\"aeemesh schema list\" lists the agents that do.", err)
				}
				whole := sdsi.Whole(got, time.Now())
				switch {
				case asSchema:
					a.Term.Line("%s", a.Term.Data.Safe(term.Indented(whole.JSONSchema())))
				case a.Term.JSON:
					a.Term.Raw(reply.Payload)
				default:
					printTemplate(a.Term, whole, got.Hash)
				}
				return nil
			})
		}),
	})
	c.Flags().StringVar(&language, "language", "", "`language` of the descriptions: a BCP 47 tag, or a list as in Accept-Language")
	c.Flags().StringVar(&id, "id", "", "this `schema_id` instead of the current one")
	c.Flags().BoolVar(&asSchema, "json-schema", false, "print the JSON Schema of a payload")
	a.AddSignFlags(c.Flags(), session.SignAll)
	return c
}

func printTemplate(t *term.Terminal, tpl *template.Template, hash string) {
	t.Line("schema_id    %s", term.OneLine(tpl.SchemaID))
	t.Line("scenario     %s", term.OneLine(tpl.Scenario))
	if tpl.Description != "" {
		t.Line("description  %s", term.OneLine(tpl.Description))
	}
	if tpl.Language != "" {
		t.Line("language     %s", term.OneLine(tpl.Language))
	}
	if hash != "" {
		t.Line("hash         %s", term.OneLine(hash))
	}
	t.Line("")
	var rows [][]string
	for _, k := range tpl.Keys {
		rows = append(rows, []string{k.Name, string(k.Type), keyState(k), string(k.Default), string(k.Value), k.Description})
	}
	t.Table([]string{"key", "type", "", "default", "values", "meaning"}, rows)
	if len(tpl.ResponseSchema) > 0 {
		t.Line("")
		t.Line("response_schema %s", t.Data.Safe(term.Indented(tpl.ResponseSchema)))
	}
}

// keyState says in a word what is special about a key.
func keyState(k template.Key) string {
	var words []string
	for _, w := range []struct {
		is   bool
		word string
	}{{k.Required, "required"}, {k.Experimental, "experimental"}, {k.Deprecated, "deprecated"}} {
		if w.is {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, ",")
}

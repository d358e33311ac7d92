package schemas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/jetstream"
)

// stored is a version in the mesh's bucket, as --json prints it.
type stored struct {
	SchemaID string    `json:"schema_id"`
	Scenario string    `json:"scenario"`
	Keys     int       `json:"keys"`
	Hash     string    `json:"hash"`
	Stored   time.Time `json:"stored"`
}

func historyCommand(a *session.App, complete cobra.CompletionFunc) *cobra.Command {
	var scenario string
	c := session.Connects(&cobra.Command{
		Use:   "history ENTITY",
		Short: "List the versions that an agent has published",
		Long: `Lists the versions of an agent's templates that are stored in the mesh, the
oldest first. A version never changes.`,
		Example:           `  aeemesh schema history agent.flights`,
		Args:              outcome.Arguments("ENTITY"),
		ValidArgsFunction: complete,
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := checkEntity(cmd, args[0]); err != nil {
				return err
			}
			return withTemplates(a, ctx, cmd, func(ctx context.Context, store *jetstream.Templates) error {
				records, err := store.List(ctx, args[0])
				if err != nil {
					return session.LaneError(err)
				}
				var rows [][]string
				for _, r := range records {
					t, err := template.Parse(r.Value)
					if err != nil || scenario != "" && t.Scenario != scenario {
						continue
					}
					v := stored{t.SchemaID, t.Scenario, len(t.Keys), t.Hash(), r.Time}
					if a.Term.JSON {
						if err := a.Term.Object(v); err != nil {
							return err
						}
					}
					rows = append(rows, []string{v.SchemaID, v.Scenario, fmt.Sprint(v.Keys), term.Ago(v.Stored), v.Hash})
				}
				if len(rows) == 0 {
					return outcome.NotFound("%s has published no templates", args[0])
				}
				if !a.Term.JSON {
					a.Term.Table([]string{"schema_id", "scenario", "keys", "stored", "hash"}, rows)
				}
				return nil
			})
		}),
	})
	c.Flags().StringVar(&scenario, "scenario", "", "only this `scenario`")
	return c
}

// withTemplates runs f with the mesh's stored templates.
func withTemplates(a *session.App, ctx context.Context, cmd *cobra.Command, f func(context.Context, *jetstream.Templates) error) error {
	return withStores(a, ctx, cmd, func(ctx context.Context, t *jetstream.Templates, _ *jetstream.Pools) error { return f(ctx, t) })
}

// withStores runs f with the mesh's stored templates, and what was learned beside them.
func withStores(a *session.App, ctx context.Context, cmd *cobra.Command, f func(context.Context, *jetstream.Templates, *jetstream.Pools) error) error {
	conn, err := a.Connect(ctx, cmd, session.ConnectionStatus(a.Term, false))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := a.JetStream(conn)
	if err != nil {
		return err
	}
	m, err := a.Subjects()
	if err != nil {
		return err
	}
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	return f(ctx, jetstream.NewTemplates(js, m), jetstream.NewPools(js, m))
}

func diffCommand(a *session.App) *cobra.Command {
	var entity string
	c := session.Connects(&cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Compare two versions of a template",
		Long: `Compares two templates, key by key. OLD and NEW are files, or with --entity the
schema_id of stored versions. The exit status is 1 if clients of OLD would be
refused by NEW: a key was removed, retyped, or is required now.`,
		Example: `  aeemesh schema diff flight_v1.sdsi.json flight_v2.sdsi.json
  aeemesh schema diff flight_v1 flight_v2 --entity agent.flights`,
		Args: outcome.Arguments("OLD", "NEW"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			var both [2]*template.Template
			load := func(read func(name string) ([]byte, error)) error {
				for i, name := range args {
					raw, err := read(name)
					if errors.Is(err, jetstream.ErrNotFound) {
						return outcome.NotFound("%s has no template %s", entity, name)
					}
					if err != nil {
						return err
					}
					if both[i], err = template.Parse(raw); err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
				}
				return nil
			}
			var err error
			if entity == "" {
				if err = load(os.ReadFile); errors.Is(err, fs.ErrNotExist) {
					err = outcome.Hinted(err, "With --entity, OLD and NEW are the schema_id of stored versions; \"aeemesh schema history ENTITY\" lists them.")
				}
			} else {
				err = withTemplates(a, ctx, cmd, func(ctx context.Context, store *jetstream.Templates) error {
					return load(func(id string) ([]byte, error) { return store.Get(ctx, entity, id) })
				})
			}
			if err != nil {
				return err
			}
			changes := compare(both[0], both[1])
			if a.Term.JSON {
				if err := term.Objects(a.Term, changes); err != nil {
					return err
				}
			} else {
				printChanges(a.Term, changes)
			}
			var breaking []string
			for _, c := range changes {
				if c.Breaking {
					breaking = append(breaking, c.Key)
				}
			}
			if len(breaking) > 0 {
				return fmt.Errorf("clients of %s would be refused by %s: %s", both[0].SchemaID, both[1].SchemaID, strings.Join(breaking, ", "))
			}
			return nil
		}),
	})
	c.Flags().StringVar(&entity, "entity", "", "OLD and NEW are stored versions of this `entity`")
	return c
}

// change is what differs in one key.
type change struct {
	Key      string `json:"key_name"`
	What     string `json:"what"`
	Breaking bool   `json:"breaking"`
}

// compare lists what differs between the keys of two templates, in the order of the new
// one.
func compare(old, now *template.Template) []change {
	var out []change
	was := map[string]template.Key{}
	for _, k := range old.Keys {
		was[k.Name] = k
	}
	for _, k := range now.Keys {
		before, there := was[k.Name]
		delete(was, k.Name)
		add := func(breaking bool, format string, args ...any) {
			out = append(out, change{k.Name, fmt.Sprintf(format, args...), breaking})
		}
		if !there {
			add(k.Required, "added, %s%s", k.Type, map[bool]string{true: ", required"}[k.Required])
			continue
		}
		if before.Type != k.Type {
			add(true, "type %s, was %s", k.Type, before.Type)
		}
		if before.Required != k.Required {
			add(k.Required, "%s, was %s", requiredWord(k), requiredWord(before))
		}
		if !same(before.Default, k.Default) {
			add(false, "default %s, was %s", orNone(k.Default), orNone(before.Default))
		}
		if !same(before.Value, k.Value) {
			add(false, "values %s, were %s", orNone(k.Value), orNone(before.Value))
		}
		if before.Description != k.Description {
			add(false, "another description")
		}
		if before.Experimental != k.Experimental || before.Deprecated != k.Deprecated {
			add(false, "%s, was %s", orNone([]byte(keyState(k))), orNone([]byte(keyState(before))))
		}
	}
	for _, k := range old.Keys {
		if _, gone := was[k.Name]; gone {
			out = append(out, change{k.Name, "removed", true})
		}
	}
	return out
}

func requiredWord(k template.Key) string {
	if k.Required {
		return "required"
	}
	return "optional"
}

func orNone(raw []byte) string {
	if len(raw) == 0 {
		return "none"
	}
	return string(raw)
}

func same(a, b json.RawMessage) bool {
	return string(term.Compact(a)) == string(term.Compact(b))
}

func printChanges(t *term.Terminal, changes []change) {
	if len(changes) == 0 {
		t.Say("no difference")
		return
	}
	var rows [][]string
	for _, c := range changes {
		rows = append(rows, []string{c.Key, c.What, map[bool]string{true: "breaks clients"}[c.Breaking]})
	}
	t.Table([]string{"key", "change", ""}, rows)
}

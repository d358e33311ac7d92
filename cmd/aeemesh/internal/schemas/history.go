package schemas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/subject"
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
	Newest   bool      `json:"newest"` // of its scenario
}

func historyCommand(a *session.App) *cobra.Command {
	var scenario string
	c := session.Connects(&cobra.Command{
		Use:   "history ENTITY",
		Short: "List the versions that an agent has published",
		Long: `Lists the versions of an agent's templates that are stored in the mesh, the
oldest first. A version never changes. The newest one of a scenario, in natural
order of schema_id, is what its workers serve once all of them have it.`,
		Example:           `  aeemesh schema history agent.flights`,
		Args:              outcome.Arguments("ENTITY"),
		ValidArgsFunction: session.CompleteEntities(a, 1),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := checkEntity(cmd, args[0]); err != nil {
				return err
			}
			return withTemplates(a, ctx, cmd, func(ctx context.Context, store *jetstream.Templates) error {
				records, err := store.List(ctx, args[0])
				if err != nil {
					return session.LaneError(err)
				}
				var all []stored
				current := map[string]string{} // by scenario
				for _, r := range records {
					t, err := template.Parse(r.Value)
					if err != nil || scenario != "" && t.Scenario != scenario {
						continue
					}
					all = append(all, stored{t.SchemaID, t.Scenario, len(t.Keys), t.Hash(), r.Time, false})
					if now, there := current[t.Scenario]; !there || template.LessID(now, t.SchemaID) {
						current[t.Scenario] = t.SchemaID
					}
				}
				switch {
				case len(all) == 0 && scenario != "":
					return outcome.NotFound("%s has published no templates of a scenario %s", args[0], scenario)
				case len(all) == 0:
					return outcome.NotFound("%s has published no templates", args[0])
				}
				for i, v := range all {
					all[i].Newest = current[v.Scenario] == v.SchemaID
				}
				return term.List(a.Term, []string{"schema_id", "scenario", "keys", "stored", "", "hash"}, all, func(v stored) []string {
					return []string{v.SchemaID, v.Scenario, fmt.Sprint(v.Keys), term.Ago(v.Stored), map[bool]string{true: "newest"}[v.Newest], v.Hash}
				})
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
	js, m, err := a.Streams(conn)
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
schema_id of stored versions. The exit status is 1 if NEW breaks clients of OLD:
a key was removed, is required now or takes fewer values, the scenario has
another name, or results have another form. Where a JSON Schema was rewritten so
that it cannot be told whether it takes less, it counts as if it did.`,
		Example: `  aeemesh schema diff flight_v1.sdsi.json flight_v2.sdsi.json
  aeemesh schema diff flight_v1 flight_v2 --entity agent.flights`,
		Args: outcome.Arguments("OLD", "NEW"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := subject.ValidateEntity(entity); entity != "" && err != nil {
				return outcome.Usagef(cmd, "--entity: %w", err)
			}
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
			changes := template.Compare(both[0], both[1])
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
					breaking = append(breaking, cmp.Or(c.Key, c.What))
				}
			}
			if len(breaking) > 0 {
				return fmt.Errorf("%s breaks clients of %s: %s", args[1], args[0], strings.Join(slices.Compact(breaking), ", "))
			}
			return nil
		}),
	})
	c.Flags().StringVar(&entity, "entity", "", "OLD and NEW are stored versions of this `entity`")
	return c
}

func printChanges(t *term.Terminal, changes []template.Change) {
	if len(changes) == 0 {
		t.Say("no difference")
		return
	}
	var rows [][]string
	for _, c := range changes {
		rows = append(rows, []string{cmp.Or(c.Key, "(template)"), c.What, map[bool]string{true: "breaks clients"}[c.Breaking]})
	}
	t.Table([]string{"key", "change", ""}, rows)
}

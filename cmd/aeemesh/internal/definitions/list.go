package definitions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

// definitionView is a registration in lists and JSON output.
type definitionView struct {
	Key      string    `json:"key"`
	Entity   string    `json:"entity,omitempty"`
	AgentID  string    `json:"agent_id,omitempty"`
	Aliases  []string  `json:"aliases,omitempty"`
	Name     string    `json:"name,omitempty"`
	Version  string    `json:"version,omitempty"`
	Role     aaif.Role `json:"role,omitempty"`
	Skills   []string  `json:"skills,omitempty"`
	Format   string    `json:"format,omitempty"`
	SHA256   string    `json:"sha256,omitempty"`
	Revision uint64    `json:"revision"`
	At       time.Time `json:"registered_at,omitzero"`
	By       string    `json:"registered_by,omitempty"`
	Removed  bool      `json:"removed,omitempty"`
	Workers  *int      `json:"workers,omitempty"` // workers that answer; only in lists
	Problem  string    `json:"problem,omitempty"` // why the record is invalid
}

func viewDefinition(e *registry.Entry) definitionView {
	r := &e.Record
	v := definitionView{Key: e.Key, Entity: r.Entity, AgentID: r.AgentID, Aliases: r.Aliases, Name: r.Name, Version: r.Version, Role: r.Role,
		Skills: r.Skills, Format: string(r.Format), SHA256: r.SHA256, Revision: e.Revision, At: e.Time, By: r.By, Removed: e.Removed}
	if e.Err != nil {
		v.Problem = strings.ReplaceAll(e.Err.Error(), "\n", "; ")
	}
	return v
}

func agentsDefinitionsCommand(a *session.App) *cobra.Command {
	var wait time.Duration
	c := session.Connects(&cobra.Command{
		Use:   "definitions",
		Short: "List registered definitions, and how many workers serve them",
		Long: `Lists the mesh's registry: each definition with its version, the names that it
is found by, and how many workers answer for it now.`,
		Example: `  aeemesh agents definitions
  aeemesh agents definitions --json | jq 'select(.workers == 0)'

  # with the nats CLI:
  nats kv ls aee_agents`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			return withDefinitions(a, ctx, cmd, func(ctx context.Context, s *session.Session, _ registry.Registry, all []registry.Entry) error {
				found, known, err := workers.DiscoverIfAllowed(ctx, a.Term, s.Node, "", wait)
				if err != nil {
					return err
				}
				count := map[string]int{}
				for _, i := range found {
					count[i.Entity]++
				}
				sorted.By(all, func(x, y registry.Entry) int {
					return cmp.Or(strings.Compare(x.Record.Entity, y.Record.Entity), strings.Compare(x.Key, y.Key))
				})
				return showDefinitions(a, all, count, known)
			})
		}),
	})
	c.Flags().DurationVar(&wait, "wait", time.Second, "how long to wait for workers' answers")
	return c
}

// showDefinitions prints registrations with the number of workers of each, if it is known.
func showDefinitions(a *session.App, all []registry.Entry, count map[string]int, known bool) error {
	var views []definitionView
	for i := range all {
		v := viewDefinition(&all[i])
		if n := count[v.Entity]; known && v.Problem == "" {
			v.Workers = &n
		}
		if v.Problem != "" && !a.Term.JSON {
			a.Term.Warn("%s: %s", term.Printable(v.Key), term.Printable(v.Problem))
			continue
		}
		views = append(views, v)
	}
	if len(views) == 0 && !a.Term.JSON {
		a.Term.Say("nothing is registered")
		a.Term.Hint("\"aeemesh agents import FILE\" registers a definition.")
	}
	return term.List(a.Term, []string{"entity", "agent id", "version", "aliases", "skills", "workers", "registered", "by"}, views, func(v definitionView) []string {
		answer := "?"
		if v.Workers != nil {
			answer = strconv.Itoa(*v.Workers)
		}
		return []string{v.Entity, cmp.Or(v.AgentID, "-"), v.Version, strings.Join(v.Aliases, ", "), strings.Join(v.Skills, ", "), answer, term.Ago(v.At), v.By}
	})
}

// keyOf returns the key of a name, also of a removed registration.
func keyOf(all []registry.Entry, name string) string {
	if c, ok := indexOf(all).Find(name); ok {
		return c.Key
	}
	return registry.KeyOf(name, "")
}

func notRegistered(err error, name string) error {
	if errors.Is(err, registry.ErrNotFound) {
		return outcome.Hinted(fmt.Errorf("%s: %w", term.Printable(name), registry.ErrNotFound), "\"aeemesh agents definitions\" lists what is.")
	}
	return err
}

func agentsExportCommand(a *session.App) *cobra.Command {
	var out, format string
	var revision uint64
	c := session.Connects(&cobra.Command{
		Use:   "export NAME",
		Short: "Write a registered definition, as it was or in another format",
		Long: `Writes the document that is registered under NAME: an agent_id, an entity, an
alias, or the entity without its type. It comes byte for byte as it was
registered; --format writes it anew, and --json prints it as one line of JSON.
--revision takes an earlier version ("agents history").`,
		Example: `  aeemesh agents export agent.reviewer
  aeemesh agents export reviewer --format json | jq .agent.model
  aeemesh agents export reviewer -o reviewer.yaml

  # back to an earlier version:
  aeemesh agents export reviewer --revision 41 | aeemesh agents import -`,
		Args:              outcome.Arguments("NAME"),
		ValidArgsFunction: session.Completing(a, completeDefinitions),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := outcome.OneOf(cmd, "format", format, "", "json", "yaml", "cbor"); err != nil {
				return err
			}
			line := a.Term.JSON && out == "-"
			if line {
				if format = cmp.Or(format, "json"); format != "json" {
					return outcome.Usagef(cmd, "--format %s is no JSON: leave --json out", format)
				}
			}
			return withDefinitions(a, ctx, cmd, func(ctx context.Context, _ *session.Session, reg registry.Registry, all []registry.Entry) error {
				key := keyOf(all, args[0])
				var e registry.Entry
				var err error
				if revision == 0 {
					e, err = reg.Get(ctx, key)
				} else {
					e, err = reg.At(ctx, key, revision)
				}
				if err == nil {
					err = e.Err
				}
				if err != nil {
					return notRegistered(err, args[0])
				}
				data, err := exported(&e.Record, aaif.Format(format))
				if err != nil {
					return err
				}
				if out != "-" {
					return os.WriteFile(out, data, 0o644)
				}
				if line {
					a.Term.Raw(data)
					return nil
				}
				return a.Term.Bytes(data)
			})
		}),
	})
	c.Flags().StringVarP(&out, "out", "o", "-", "`file` to write, or - for standard output")
	c.Flags().StringVar(&format, "format", "", "json, yaml or cbor (default as it was registered, byte for byte)")
	c.Flags().Uint64Var(&revision, "revision", 0, "an earlier `revision` of it")
	return c
}

// exported returns the document of a record in a format; "" is the original
// one.
func exported(r *registry.Record, format aaif.Format) ([]byte, error) {
	if format == "" || format == r.Format {
		return r.Document, nil
	}
	doc, err := r.Parse()
	if err != nil {
		return nil, err
	}
	return doc.Encode(format)
}

func agentsHistoryCommand(a *session.App) *cobra.Command {
	return session.Connects(&cobra.Command{
		Use:   "history NAME",
		Short: "List the versions that are kept of a registration",
		Long: `Lists the last versions of a registration, the oldest first: at most 16, and
also that it was removed. NAME is as for "agents export"; for a removed
definition it is the agent_id, or the entity where it had none.`,
		Example: `  aeemesh agents history agent.reviewer
  aeemesh agents history agent.reviewer --json | jq -r .sha256

  # with the nats CLI:
  nats kv history aee_agents AGENT_ID`,
		Args:              outcome.Arguments("NAME"),
		ValidArgsFunction: session.Completing(a, completeDefinitions),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return withDefinitions(a, ctx, cmd, func(ctx context.Context, _ *session.Session, reg registry.Registry, all []registry.Entry) error {
				kept, err := reg.History(ctx, keyOf(all, args[0]))
				if err != nil {
					return notRegistered(err, args[0])
				}
				views := make([]definitionView, len(kept))
				for i := range kept {
					views[i] = viewDefinition(&kept[i])
				}
				return term.List(a.Term, []string{"revision", "entity", "version", "sha256", "registered", "by"}, views, func(v definitionView) []string {
					what := v.Entity
					switch {
					case v.Removed:
						what = "(removed)"
					case v.Problem != "":
						what = "(" + v.Problem + ")"
					}
					return []string{strconv.FormatUint(v.Revision, 10), what, v.Version, fmt.Sprintf("%.12s", v.SHA256), term.Ago(v.At), v.By}
				})
			})
		}),
	})
}

func agentsRemoveCommand(a *session.App) *cobra.Command {
	return session.Connects(&cobra.Command{
		Use:   "remove NAME...",
		Short: "Remove definitions from the registry",
		Long: `Removes registrations: teams no longer find these agents by agent_id, alias or
registered skill. Workers go on. The stored versions stay, and
"agents export --revision" brings one back.`,
		Example: `  aeemesh agents remove agent.reviewer
  aeemesh agents remove 6f0c8f0e-2f6a-4a39-8d2b-0c7d4c3f9a11`,
		Args:              outcome.Arguments("NAME..."),
		ValidArgsFunction: session.Completing(a, completeDefinitions),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return withDefinitions(a, ctx, cmd, func(ctx context.Context, _ *session.Session, reg registry.Registry, all []registry.Entry) error {
				entries := make([]registry.Entry, len(args))
				for i, name := range args { // check all names before the first is removed
					key := keyOf(all, name)
					at := slices.IndexFunc(all, func(e registry.Entry) bool { return e.Key == key })
					if at < 0 {
						return notRegistered(registry.ErrNotFound, name)
					}
					entries[i] = all[at]
				}
				for _, e := range entries {
					removing, cancel := context.WithTimeout(ctx, a.Conn.Wait())
					err := reg.Remove(removing, e.Key, e.Revision)
					cancel()
					if err != nil {
						return RegistryError(err)
					}
					if a.Term.JSON {
						if err := a.Term.Object(map[string]any{"key": e.Key, "entity": e.Record.Entity, "removed": true, "was_revision": e.Revision}); err != nil {
							return err
						}
						continue
					}
					a.Term.Good("%s is not registered any more", term.Printable(cmp.Or(e.Record.Entity, e.Key)))
					a.Term.Hint(fmt.Sprintf("\"aeemesh agents export %s --revision %d | aeemesh agents import -\" brings it back.", term.Printable(e.Key), e.Revision))
				}
				return nil
			})
		}),
	})
}

// completeDefinitions completes the first argument with registered agents.
func completeDefinitions(a *session.App, cmd *cobra.Command, args []string, _ string) (out []string, _ cobra.ShellCompDirective) {
	session.StreamsToComplete(a, cmd, func(ctx context.Context, js natsjs.JetStream, m subject.Map) {
		all, _ := jetstream.NewAgents(js, m).List(ctx)
		for _, e := range all {
			if e.Err == nil && !slices.Contains(args, e.Record.Entity) {
				out = append(out, cobra.CompletionWithDesc(e.Record.Entity, term.Printable(e.Record.Name+" "+e.Record.Version)))
			}
		}
	})
	slices.Sort(out)
	return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
}

package models

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/route"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/definitions"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/operator"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
)

// Command returns "aeemesh models".
func Command(a *session.App) *cobra.Command {
	return a.Holder(&cobra.Command{
		Use:   "models",
		Short: "Look at models, their prices, and a document's routes, offline",
		Long: `Shows what is known of models, and which of them an agent's document would use
here. docs/models.md has the catalogue, the providers and the routing.`,
		Example: `  aeemesh models list anthropic
  aeemesh models show openai/gpt-4o
  aeemesh models routes reviewer.yaml --config operator.yaml`,
	}, listCommand(a), showCommand(a), routesCommand(a))
}

// line is an entry of the catalogue, or the known facts about one model.
type line struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	route.Facts
}

func listCommand(a *session.App) *cobra.Command {
	var config string
	c := &cobra.Command{
		Use:   "list [PROVIDER]",
		Short: "List the catalogue",
		Long: `Lists what is known of models: context window and longest answer in tokens, list
prices in USD for a thousand tokens of input and output, regions, and the rank
of routing_strategy quality. A * in a name stands for any characters, and a name
for its dated versions. With --config, the operator's catalogue comes first.`,
		Example: `  aeemesh models list
  aeemesh models list mistral --json | jq -r .model
  aeemesh models list --config operator.yaml`,
		Args:              outcome.Arguments("[PROVIDER]"),
		ValidArgsFunction: session.Completing(a, completeProviders),
		RunE: a.Do(func(_ context.Context, cmd *cobra.Command, args []string) error {
			cat, err := catalog(a, cmd, config)
			if err != nil {
				return err
			}
			var lines []line
			for _, e := range cat.Entries {
				if len(args) == 0 || e.Provider == args[0] {
					lines = append(lines, line{e.Provider, e.Model, e.Facts})
				}
			}
			if len(lines) == 0 && len(args) > 0 {
				return outcome.Hinted(outcome.NotFound("the catalogue has no models of %q", args[0]), "It has some of %s.", strings.Join(catalogProviders(cat), ", "))
			}
			header := []string{"provider", "model", "window", "longest answer", "input", "output", "regions", "quality"}
			err = term.List(a.Term, header, lines, func(l line) []string { return append([]string{l.Provider, l.Model}, factCells(l.Facts)...) })
			if !a.Term.JSON {
				a.Term.Say("as of %s; USD for a thousand tokens", cat.Date)
			}
			return err
		}),
	}
	configFlag(c, &config)
	return c
}

func showCommand(a *session.App) *cobra.Command {
	var config string
	c := &cobra.Command{
		Use:   "show PROVIDER/MODEL",
		Short: "Show what is known of one model",
		Long: `Shows what the catalogue knows of a model, and from which entry. The provider is
the part before the first slash.`,
		Example: `  aeemesh models show openai/gpt-4o-2024-08-06
  aeemesh models show openrouter/anthropic/claude-sonnet-4.5 --json
  aeemesh models show bedrock/eu.anthropic.claude-sonnet-4-5-20250929-v1:0`,
		Args:              outcome.Arguments("PROVIDER/MODEL"),
		ValidArgsFunction: session.Completing(a, completeModels),
		RunE: a.Do(func(_ context.Context, cmd *cobra.Command, args []string) error {
			cat, err := catalog(a, cmd, config)
			if err != nil {
				return err
			}
			provider, name, ok := strings.Cut(args[0], "/")
			if !ok {
				return outcome.Usagef(cmd, "%q: it is PROVIDER/MODEL, such as openai/gpt-4o", args[0])
			}
			e, ok := cat.Find(provider, name)
			if !ok {
				return outcome.Hinted(outcome.NotFound("the catalogue has no model %s", args[0]), "\"aeemesh models list %s\" has what is; a catalogue of your own adds more (models.catalog in --config).", provider)
			}
			if a.Term.JSON {
				return a.Term.Object(struct {
					line
					Entry string `json:"entry"`
					Date  string `json:"date"`
				}{line{provider, name, e.Facts}, e.Provider + "/" + e.Model, cat.Date})
			}
			a.Term.Heading("%s", args[0])
			printFacts(a, e, cat.Date)
			return nil
		}),
	}
	configFlag(c, &config)
	return c
}

func printFacts(a *session.App, e route.Entry, date string) {
	f := e.Facts
	line := func(name, value string) {
		if value != "" {
			a.Term.Line("  %-16s %s", name, value)
		}
	}
	line("entry", e.Provider+"/"+e.Model+", as of "+date)
	line("context window", tokensCell(f.ContextTokens))
	line("longest answer", tokensCell(f.MaxOutputTokens))
	line("input", price(f.Input))
	line("output", price(f.Output))
	line("cached input", price(f.CachedInput))
	line("cache write", price(f.CacheWrite))
	if l := f.Long; l != nil {
		line("long input", fmt.Sprintf("above %d tokens: %s input, %s output", l.Above, l.Input, l.Output))
	}
	line("regions", strings.Join(f.Regions, ", "))
	line("quality", qualityCell(f.Quality))
}

// price formats the price of a thousand tokens.
func price(u *model.USD) string {
	if u == nil {
		return ""
	}
	return u.String() + " USD a thousand tokens"
}

// factCells returns the cells of a table row; a cell is empty if the fact is
// not known.
func factCells(f route.Facts) []string {
	usd := func(u *model.USD) string {
		if u == nil {
			return ""
		}
		return u.String()
	}
	return []string{tokensCell(f.ContextTokens), tokensCell(f.MaxOutputTokens), usd(f.Input), usd(f.Output), strings.Join(f.Regions, " "), qualityCell(f.Quality)}
}

func tokensCell(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func qualityCell(q float64) string {
	if q == 0 {
		return ""
	}
	return strconv.FormatFloat(q, 'g', -1, 64)
}

// configFlag adds --config to commands that use no other operator's flags.
func configFlag(c *cobra.Command, file *string) {
	c.Flags().StringVar(file, "config", "", "`FILE` (YAML) of what agents may have here, with section models")
}

// catalog returns the built-in catalogue with the operator's additions.
func catalog(a *session.App, cmd *cobra.Command, config string) (*route.Catalog, error) {
	set, err := (&operator.Flags{File: config}).Adapters(a, cmd)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	return set.Catalog(), nil
}

func catalogProviders(cat *route.Catalog) []string {
	var names []string
	for _, e := range cat.Entries {
		if !slices.Contains(names, e.Provider) {
			names = append(names, e.Provider)
		}
	}
	return names
}

// completeProviders completes the first argument with the catalogue's
// providers.
func completeProviders(a *session.App, _ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return catalogProviders(route.Builtin()), cobra.ShellCompDirectiveNoFileComp
}

// completeModels completes the first argument with the catalogue's models.
func completeModels(a *session.App, _ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, e := range route.Builtin().Entries {
		if !strings.Contains(e.Model, "*") {
			out = append(out, e.Provider+"/"+e.Model)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// routeLine is a route of a document in JSON output.
type routeLine struct {
	Order    int    `json:"order,omitempty"` // from 1; absent if the route cannot be used
	Pointer  string `json:"pointer"`
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Endpoint string `json:"endpoint,omitempty"`
	Key      string `json:"key,omitempty"`
	HasKey   bool   `json:"has_key"`
	Skipped  string `json:"skipped,omitempty"`
	route.Facts
}

func routesCommand(a *session.App) *cobra.Command {
	var allowed operator.Flags
	var keyName string
	var contextTokens int
	c := &cobra.Command{
		Use:   "routes FILE",
		Short: "Show which models a document would use here, in which order",
		Long: `Shows the routes that an agent's document gives on this machine: those that can
be used, in the order in which its routing_strategy tries them, and the others,
each with the reason. Nothing is connected to; a wrong key or a missing model
shows at the first call. The exit status is 1 if no route can be used.

For the strategies latency and round_robin it is the order before anything was
measured.`,
		Example: `  aeemesh models routes reviewer.yaml
  aeemesh models routes reviewer.yaml --config operator.yaml --context-tokens 32768
  aeemesh models routes reviewer.yaml --allow http://127.0.0.1:8080
  aeemesh models routes reviewer.yaml --json | jq -r 'select(.skipped) | .skipped'`,
		Args: outcome.Arguments("FILE"),
		RunE: a.Do(func(_ context.Context, cmd *cobra.Command, args []string) error {
			if contextTokens < 0 {
				return outcome.Usagef(cmd, "--context-tokens cannot be negative")
			}
			set, err := allowed.Adapters(a, cmd)
			if err != nil {
				return err
			}
			defer set.Close()
			return printRoutes(a, set, args[0], agents.Options{KeyName: keyName, ContextTokens: contextTokens})
		}),
	}
	c.Flags().StringVar(&allowed.File, "config", "", "`FILE` (YAML) of what agents may have here, with section models")
	c.Flags().StringArrayVar(&allowed.Allow, "allow", nil, "`HOST` that a document's base_url may be, as in worker --allow; repeatable")
	c.Flags().IntVar(&contextTokens, "context-tokens", 0, "size of the models' context window (default what is known of each)")
	c.Flags().StringVar(&keyName, "api-key-env", "", "`NAME` of the variable that holds the first model's API key")
	return c
}

func printRoutes(a *session.App, set *adapters.Set, name string, opts agents.Options) error {
	doc, err := definitions.Read(a, name)
	if err != nil {
		return err
	}
	set.Use(&opts)
	routes, notices, err := set.Routes(doc.Definition(), opts)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var rows [][]string
	usable := 0
	for _, p := range routes {
		l := routeLine{Pointer: p.Pointer, Provider: p.Provider, Model: p.Route.Model, Endpoint: p.Endpoint, Key: p.Key, HasKey: p.HasKey, Skipped: p.Why, Facts: p.Facts}
		order := ""
		if p.Why == "" {
			usable++
			l.Order, order = usable, strconv.Itoa(usable)
		}
		if a.Term.JSON {
			if err := a.Term.Object(l); err != nil {
				return err
			}
			continue
		}
		key := p.Key
		switch {
		case key == "":
			key = "none"
		case !p.HasKey:
			key += ", not set"
		}
		cells := factCells(p.Facts)
		rows = append(rows, []string{order, p.Name(), cells[0], cells[2], cells[3], key, p.Why})
	}
	if !a.Term.JSON {
		a.Term.Table([]string{"", "route", "window", "input", "output", "key", "not taken because"}, rows)
	}
	for i := range notices { // problems that stop the route are printed below
		if notices[i].Severity == aaif.SeverityError {
			notices[i].Severity = aaif.SeverityWarning
		}
	}
	a.Term.Notices(name, notices)
	if usable == 0 {
		err := adapters.NoRoute(routes, fmt.Errorf("%s: no route to a model can be used here", name))
		return outcome.Hinted(err, "%s", outcome.RoutesHint(err.UnsetKeys()))
	}
	return nil
}

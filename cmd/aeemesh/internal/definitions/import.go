package definitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

// Commands are the subcommands of "agents" for the mesh's registry.
func Commands(a *session.App) []*cobra.Command {
	return []*cobra.Command{agentsDefinitionsCommand(a), agentsImportCommand(a), agentsExportCommand(a), agentsHistoryCommand(a), agentsRemoveCommand(a)}
}

// Open opens the mesh's registry.
func Open(s *session.Session) (registry.Registry, error) {
	js, m, err := s.App.Streams(s.Conn)
	if err != nil {
		return nil, err
	}
	return jetstream.NewAgents(js, m), nil
}

// withDefinitions connects, reads all registrations, and calls do.
func withDefinitions(a *session.App, ctx context.Context, cmd *cobra.Command, do func(context.Context, *session.Session, registry.Registry, []registry.Entry) error) error {
	s, err := a.Open(ctx, cmd, session.Options{Entity: a.DefaultFrom()})
	if err != nil {
		return err
	}
	defer s.Close()
	reg, err := Open(s)
	if err != nil {
		return err
	}
	listing, cancel := context.WithTimeout(ctx, a.Conn.Wait())
	defer cancel()
	all, err := reg.List(listing)
	if err != nil {
		return err
	}
	return do(ctx, s, reg, all)
}

func indexOf(all []registry.Entry) *registry.Index {
	x := &registry.Index{}
	for i := range all {
		x.Set(&all[i])
	}
	return x
}

// importFlags are the flags of "agents import".
type importFlags struct {
	as      string
	aliases []string
	dry     bool
	replace bool
	reach   reachFlags
}

// registration is the result of registering one document.
type registration struct {
	File     string   `json:"file"`
	Outcome  string   `json:"outcome"` // new, changed, unchanged
	Key      string   `json:"key"`
	Entity   string   `json:"entity"`
	AgentID  string   `json:"agent_id,omitempty"`
	Version  string   `json:"version,omitempty"`
	SHA256   string   `json:"sha256"`
	Revision uint64   `json:"revision,omitempty"` // 0 with --dry-run, if it would change
	Was      string   `json:"was,omitempty"`      // the previous version, if it changed
	Replaced []string `json:"replaced,omitempty"` // the keys of other registrations that were removed for it
	DryRun   bool     `json:"dry_run,omitempty"`
}

func agentsImportCommand(a *session.App) *cobra.Command {
	f := &importFlags{}
	c := session.Connects(&cobra.Command{
		Use:   "import FILE...",
		Short: "Register definitions, so that teams find these agents",
		Long: `Registers AAIF agent definitions in the mesh's registry (bucket aee_agents),
byte for byte. Each is checked first as "validate" does, and none is registered
if one is invalid. Of an agent that a worker here refuses a warning says why.
FILE is a file, a URL (https://… or http://…), or "-" for standard input.

A definition is known by its agent_id; without one, by its entity. Its entity is
the one that a worker would serve: agent. and its name, unless --as says
otherwise. Registering it again keeps its --as and its aliases. The last 16
versions are kept: see "agents history".

Registering runs nothing: a worker does ("aeemesh worker FILE").`,
		Example: `  aeemesh agents import reviewer.yaml writer.yaml
  aeemesh agents import agents/*.yaml --dry-run
  aeemesh agents import https://example.com/agents/reviewer.json
  aeemesh agents import reviewer.yaml --as agent.eu.reviewer --alias reviewer

  # with the nats CLI, what is stored:
  nats kv get aee_agents AGENT_ID --raw | jq -r .document`,
		Args: outcome.Arguments("FILE..."),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return importDefinitions(a, ctx, cmd, f, args)
		}),
	})
	c.Flags().StringVar(&f.as, "as", "", "register under this `entity` instead of the name's (one document only)")
	c.Flags().StringArrayVar(&f.aliases, "alias", nil, "further `NAME` of the agent, instead of those that it has; repeatable; empty for none (one document only)")
	c.Flags().BoolVar(&f.dry, "dry-run", false, "print what would be done, and do nothing")
	c.Flags().BoolVar(&f.replace, "replace", false, "remove other definitions that have the entity or an alias")
	f.reach.add(c.Flags())
	return c
}

func importDefinitions(a *session.App, ctx context.Context, cmd *cobra.Command, f *importFlags, names []string) error {
	if len(names) > 1 && (f.as != "" || cmd.Flags().Changed("alias")) {
		return outcome.Usagef(cmd, "--as and --alias are for one document, and there are %d", len(names))
	}
	if f.as != "" {
		if err := subject.ValidateServed(f.as); err != nil {
			return outcome.Usagef(cmd, "--as: %w", err)
		}
	}
	docs, err := validDefinitions(a, ctx, cmd, f, names)
	if err != nil {
		return err
	}
	return withDefinitions(a, ctx, cmd, func(ctx context.Context, s *session.Session, reg registry.Registry, all []registry.Entry) error {
		r := registry.NewRegistrar(reg, all)
		r.Replace, r.Dry = f.replace, f.dry
		var records []registry.Record
		for _, d := range docs {
			rec, err := r.Record(d.doc, f.as, a.DefaultFrom())
			if err == nil && cmd.Flags().Changed("alias") {
				rec.Aliases = slices.DeleteFunc(slices.Clone(f.aliases), func(s string) bool { return s == "" })
				err = rec.Validate()
			}
			if err == nil {
				err = r.Free(&rec)
			}
			if err != nil {
				return RegistryError(fmt.Errorf("%s: %w", d.name, err))
			}
			for i, other := range records {
				switch {
				case other.Entity == rec.Entity:
					return fmt.Errorf("%s and %s are both %s", docs[i].name, d.name, rec.Entity)
				case other.Key() == rec.Key():
					return outcome.Hinted(fmt.Errorf("%s and %s have the same agent_id %s", docs[i].name, d.name, rec.AgentID), "Give each agent an agent_id of its own.")
				}
			}
			records = append(records, rec)
		}
		for i, rec := range records {
			done, err := r.Put(ctx, rec)
			if err != nil {
				return RegistryError(fmt.Errorf("%s: %w", docs[i].name, err))
			}
			if err := tellRegistration(a, registration{File: docs[i].name, Outcome: done.Outcome, Key: rec.Key(), Entity: rec.Entity, AgentID: rec.AgentID,
				Version: rec.Version, SHA256: rec.SHA256, Revision: done.Revision, Was: done.Was, Replaced: done.Replaced, DryRun: f.dry}); err != nil {
				return err
			}
		}
		return nil
	})
}

func tellRegistration(a *session.App, r registration) error {
	if a.Term.JSON {
		return a.Term.Object(r)
	}
	what := r.Outcome
	if r.DryRun && what != "unchanged" {
		what = "would be " + what
	}
	about := r.Key
	if r.Version != "" {
		about += ", version " + r.Version
	}
	if r.Was != "" && r.Was != r.Version {
		about += ", was " + r.Was
	}
	if r.Revision != 0 {
		about += fmt.Sprintf(", revision %d", r.Revision)
	}
	a.Term.Line("%s %s (%s)", what, term.Printable(r.Entity), term.Printable(about))
	for _, key := range r.Replaced {
		a.Term.Line("  instead of %s", term.Printable(key))
	}
	return nil
}

// RegistryError adds a hint to an error of the registry.
func RegistryError(err error) error {
	var taken *registry.TakenError
	switch {
	case errors.As(err, &taken):
		return outcome.Hinted(outcome.Conflict("%w", err), "--replace removes that one; --as registers this one under another entity.")
	case errors.Is(err, registry.ErrChanged):
		return outcome.Hinted(err, "Another client registered it at the same time. \"aeemesh agents history KEY\" shows what; then try again.")
	}
	return err
}

// document is a document that is to be registered.
type document struct {
	name string
	doc  *aaif.Document
}

// validDefinitions reads the documents. If it refuses one, it prints the same
// as "validate".
func validDefinitions(a *session.App, ctx context.Context, cmd *cobra.Command, f *importFlags, names []string) ([]document, error) {
	sources := make([]source, len(names))
	for i, name := range names {
		data, err := readSource(a, ctx, cmd, &f.reach, name)
		if err != nil {
			return nil, err
		}
		sources[i] = source{name, data}
	}
	verdicts, docs, err := judgeSources(sources)
	if err != nil {
		return nil, err
	}
	var out []document
	bad := 0
	for i, v := range verdicts {
		switch {
		case v.Valid && v.Kind != aaif.KindAgent:
			return nil, fmt.Errorf("%s: it is an AAIF %s, and only agent definitions are registered", v.File, v.Kind)
		case v.Valid:
			warnRefused(a, v)
			out = append(out, document{v.File, docs[i]})
			continue
		}
		bad++
		if a.Term.JSON {
			if err := a.Term.Object(v); err != nil {
				return nil, err
			}
			continue
		}
		printVerdict(a, v, false)
	}
	if bad == 0 {
		return out, nil
	}
	word := "documents are"
	if bad == 1 {
		word = "document is"
	}
	a.Term.Say("%d %s refused; nothing is registered", bad, word)
	return nil, outcome.ErrQuiet
}

// warnRefused prints why a worker here would not host an agent that is to be registered:
// workers of other programs may have what this one lacks (AAIF, Capability Negotiation).
func warnRefused(a *session.App, v verdict) {
	if len(v.Refused) == 0 {
		return
	}
	a.Term.Warn("%s: a worker here refuses this agent; it can be registered all the same", v.File)
	reasons := slices.Clone(v.Refused)
	for i := range reasons {
		reasons[i].Severity = aaif.SeverityWarning
	}
	a.Term.Notices(v.File, reasons)
}

// isURL reports whether an argument is a URL, which is fetched.
func isURL(name string) bool {
	return strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://")
}

package adapters

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/route"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/mesh"
)

// Options are a Set's dependencies in its process.
type Options struct {
	// Env looks up an environment variable. Default: none is set.
	Env func(name string) (string, bool)
	// Logger receives notices for the operator. Default: discarded.
	Logger *slog.Logger
	// Version is the program's version, which is sent to servers. Default
	// "dev".
	Version string
}

// Set is a loaded configuration, shared by the agents of a process. It is safe
// for concurrent use.
type Set struct {
	cfg     Config
	opts    Options
	openers map[aaif.Protocol]func(*aaif.Tool) (tool.Source, error)
	closers []func() error

	policy  *outbound.Policy                    // the addresses that may be reached
	secrets *secret.Set                         // the credentials that documents may name
	vaults  map[aaif.VaultProvider]secret.Vault // the same vaults for the configuration itself, which may read any path

	catalog *route.Catalog // of models
	health  *route.Health  // of routes to models
}

// New makes a set. It reads the files that the configuration names, and connects to nothing. If
// the configuration is wrong, the error joins a [Problem] for each mistake.
func New(cfg Config, opts Options) (*Set, error) {
	s, bad := open(cfg, opts)
	if err := bad.err(); err != nil {
		_ = s.Close() // nothing was connected
		return nil, err
	}
	return s, nil
}

// open makes a set, and collects the problems of the configuration. The set may be used only if
// there are none.
func open(cfg Config, opts Options) (*Set, *problems) {
	if opts.Env == nil {
		opts.Env = func(string) (string, bool) { return "", false }
	}
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	bad := &problems{place: cfg.place}
	bad.note("", cfg.Telemetry.check())
	bad.note("", cfg.Budget.Validate())
	bad.note("", cfg.Tree.Validate())
	bad.note("", cfg.Programs.check())
	bad.note("", cfg.Learning.Apply(&learn.Config{}))
	s := &Set{cfg: cfg, opts: opts, openers: make(map[aaif.Protocol]func(*aaif.Tool) (tool.Source, error))}
	s.openSecrets(bad)
	s.registerCredentials(cfg.Programs.Env)
	s.openOutbound(bad)
	s.openMCP(bad)
	s.openModels(bad)
	return s, bad
}

// Tree returns the limits for trees of tasks: section tree of the
// configuration, with the limits that section budget sets for a tree.
func (s *Set) Tree() mesh.TreeLimits {
	t := s.cfg.Tree
	t.Tokens, t.USD = s.cfg.Budget.TreeTokens, s.cfg.Budget.TreeUSD
	return t
}

// Use configures an agent's options to use the set.
func (s *Set) Use(o *agents.Options) {
	o.Open, o.Offer = s.Open, s.Offer()
	if o.Secret == nil {
		o.Secret = s.env
	}
	o.Redactor = s.Redactor()
	o.Budget = s.cfg.Budget
	if o.Models == nil {
		o.Models = s.Model
	}
}

// Open makes a source for an entry of a document's tools[]; see
// [agents.Options].Open.
func (s *Set) Open(entry *aaif.Tool) (tool.Source, error) {
	open := s.openers[entry.EffectiveProtocol()]
	if open == nil {
		return nil, fmt.Errorf("tools of protocol %s are not spoken to here", entry.EffectiveProtocol())
	}
	if err := s.checkSecrets(entry); err != nil {
		return nil, err
	}
	return open(entry)
}

// Close closes what the set has opened: sessions, processes, connections.
func (s *Set) Close() error {
	var bad []error
	for _, end := range s.closers {
		bad = append(bad, end())
	}
	return errors.Join(bad...)
}

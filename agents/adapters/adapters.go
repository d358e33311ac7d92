package adapters

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/route"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/mesh"
)

// Options are what a Set takes from its process.
type Options struct {
	// Env looks up an environment variable. Default: none is set.
	Env func(name string) (string, bool)
	// Logger gets what the operator should know. Default discards.
	Logger *slog.Logger
	// Version is the program's, which servers are told. Default "dev".
	Version string
}

// Set is a configuration at work: what the agents of a process share. It is safe
// for concurrent use.
type Set struct {
	cfg     Config
	opts    Options
	openers map[aaif.Protocol]func(*aaif.Tool) (tool.Source, error)
	closers []func() error

	policy  *outbound.Policy                    // what may be reached
	secrets *secret.Set                         // the credentials that documents may name
	vaults  map[aaif.VaultProvider]secret.Vault // the same for the configuration itself: any path

	catalog *route.Catalog // of models
	health  *route.Health  // of routes to models
}

// New makes a set. It connects to nothing, and reads the files that the
// configuration names; a configuration that cannot work is an error.
func New(cfg Config, opts Options) (*Set, error) {
	if opts.Env == nil {
		opts.Env = func(string) (string, bool) { return "", false }
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if err := cfg.Telemetry.check(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := errors.Join(cfg.Budget.Validate(), cfg.Tree.Validate(), cfg.Programs.check()); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	s := &Set{cfg: cfg, opts: opts, openers: make(map[aaif.Protocol]func(*aaif.Tool) (tool.Source, error))}
	if err := s.openSecrets(); err != nil {
		return nil, err
	}
	s.knowHanded(cfg.Programs.Env)
	if err := s.openOutbound(); err != nil {
		return nil, err
	}
	if err := s.openMCP(); err != nil {
		return nil, err
	}
	if err := s.openModels(); err != nil {
		return nil, err
	}
	return s, nil
}

// Tree is what bounds the trees of tasks here: section tree of the configuration,
// with what section budget allows the models of a tree.
func (s *Set) Tree() mesh.TreeLimits {
	t := s.cfg.Tree
	t.Tokens, t.USD = s.cfg.Budget.TreeTokens, s.cfg.Budget.TreeUSD
	return t
}

// Use has an agent use the set.
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

// Open makes a source of an entry of a document's tools[]; see
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

// Close ends what the set has opened: sessions, processes, connections.
func (s *Set) Close() error {
	var bad []error
	for _, end := range s.closers {
		bad = append(bad, end())
	}
	return errors.Join(bad...)
}

package adapters

import (
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/subprocess"
)

// Programs is section programs: the environment of the programs that the
// operator names for function tools and agents (worker --tool, --exec).
type Programs struct {
	// Env lists variables that programs get in addition to
	// [subprocess.BaseEnv]: NAME passes on the worker's own variable,
	// NAME=value sets one. NATS_* and AEEMESH_* give access to the mesh and are
	// not passed on.
	Env []string `json:"env,omitzero"`
}

func (p Programs) check() error {
	var bad []error
	for i, e := range p.Env {
		if err := subprocess.CheckEntry(e); err != nil {
			bad = append(bad, fmt.Errorf("/programs/env/%d: %w", i, err))
		}
	}
	return errors.Join(bad...)
}

// ProgramEnv returns the complete environment of such a program.
func (s *Set) ProgramEnv() []string { return subprocess.Env(s.cfg.Programs.Env, s.opts.Env) }

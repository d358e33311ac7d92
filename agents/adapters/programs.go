package adapters

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aeemesh/aeemesh/agents/secret"
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
	if err := subprocess.CheckEnv(p.Env); err != nil {
		bad = append(bad, fmt.Errorf("/programs/%w", err))
	}
	for i, e := range p.Env {
		if !strings.Contains(e, "=") && secret.MeshOwn(e) {
			bad = append(bad, fmt.Errorf("/programs/env/%d: %s may let a process into the mesh, and is not copied; give a program a key of its own as NAME=value", i, e))
		}
	}
	return errors.Join(bad...)
}

// ProgramEnv returns the complete environment of such a program.
func (s *Set) ProgramEnv() []string { return subprocess.Env(s.cfg.Programs.Env, s.opts.Env) }

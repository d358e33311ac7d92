package definitions

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate/directory"
	"github.com/aeemesh/aeemesh/agents/orchestrate/topology"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
)

// judgeInMesh adds to the verdicts which of the agents that the documents name
// are not known or not served in the running mesh.
func judgeInMesh(a *session.App, ctx context.Context, cmd *cobra.Command, names []string, verdicts []verdict, docs []*aaif.Document) error {
	s, err := a.Open(ctx, cmd, session.Options{Entity: a.DefaultFrom()})
	if err != nil {
		return outcome.Hinted(err, "Without --mesh no server is asked.")
	}
	defer s.Close()
	reg, err := Open(s)
	if err != nil {
		return err
	}
	dir := directory.New(directory.Config{})
	dir.Use(s.Node, reg)
	looking, cancel := context.WithTimeout(ctx, directory.LookTime)
	defer cancel()
	for i, doc := range docs {
		if doc == nil || doc.Definition() == nil || doc.Definition().Agent.Orchestration == nil {
			continue
		}
		// The mesh can resolve names, so the problem does not apply.
		verdicts[i].Problems = slices.DeleteFunc(verdicts[i].Problems, func(p aaif.Problem) bool { return p.Rule == topology.RuleName })
		verdicts[i].add(doc.Locate(dir.For(directory.AskerOf(doc.Definition(), "", names[i])).Present(looking, doc.Definition())))
	}
	return ctx.Err()
}

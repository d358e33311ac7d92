package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
)

// acceptances are the places of documents that --accept-unhonoured names.
func acceptances(cmd *cobra.Command, specs []string) ([]string, error) {
	var pointers []string
	for _, spec := range specs {
		pointer, err := aaif.FieldPointer(spec)
		if err != nil {
			return nil, outcome.Usagef(cmd, "--accept-unhonoured %w", err)
		}
		pointers = append(pointers, pointer)
	}
	return pointers, nil
}

// warnUnusedAcceptances says which acceptances made no difference to any agent.
func (a *app) warnUnusedAcceptances(pointers []string, served []*agents.Agent) {
	for _, p := range pointers {
		if !slices.ContainsFunc(served, func(agent *agents.Agent) bool { return slices.Contains(agent.Accepted, p) }) {
			a.Term.Warn("--accept-unhonoured %s makes no difference: what stands there is honoured, or nothing stands there", aaif.FieldPath(p))
		}
	}
}

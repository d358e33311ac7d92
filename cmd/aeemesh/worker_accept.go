package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
)

// acceptances are the places of documents that --accept-unhonoured names.
func acceptances(cmd *cobra.Command, specs []string) ([]string, error) {
	var pointers []string
	for _, spec := range specs {
		pointer, err := aaif.FieldPointer(spec)
		if err != nil {
			return nil, usagef(cmd, "--accept-unhonoured %w", err)
		}
		pointers = append(pointers, pointer)
	}
	return pointers, nil
}

// warnUnusedAcceptances says which acceptances made no difference to any agent.
func (a *app) warnUnusedAcceptances(pointers []string, served []*agents.Agent) {
	for _, p := range pointers {
		if !slices.ContainsFunc(served, func(agent *agents.Agent) bool { return slices.Contains(agent.Accepted, p) }) {
			a.term.warn("--accept-unhonoured %s makes no difference: what stands there is honoured, or nothing stands there", fieldPath(p))
		}
	}
}

// acceptanceHint tells the operator how to host an agent all the same that is
// refused for what this runtime does not do; "" where that cannot be.
func acceptanceHint(r *agents.Refusal) string {
	if len(r.Unkept) == 0 {
		return ""
	}
	var flags []string
	for _, p := range r.Unkept {
		flags = append(flags, "--accept-unhonoured "+fieldPath(p))
	}
	return fmt.Sprintf("Change the document, or accept on your own account that it is not done: worker %s", strings.Join(slices.Compact(flags), " "))
}

// fieldPath is a place of a document as [aaif.FieldPointer] reads it.
func fieldPath(pointer string) string {
	path := strings.TrimPrefix(strings.TrimPrefix(pointer, "/agent/"), "/")
	if strings.ContainsAny(path, ".~ ") {
		return pointer
	}
	return strings.ReplaceAll(path, "/", ".")
}

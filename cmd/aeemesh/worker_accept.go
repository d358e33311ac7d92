package main

import (
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

// acceptanceHint tells the operator how to host an agent all the same that is
// refused for what this runtime does not do, or is not allowed to do; "" where that
// cannot be. What it names is what these flags take.
func acceptanceHint(r *agents.Refusal) string {
	var permits, accepts, hints []string
	for _, p := range r.Unkept {
		if flag := r.Permits[p]; flag != "" {
			name, value, _ := strings.Cut(flag, " ")
			permits = append(permits, name+" "+shellWord(value))
		} else {
			accepts = append(accepts, "--accept-unhonoured "+shellWord(aaif.FieldPath(p)))
		}
	}
	flags := func(list []string) string {
		slices.Sort(list)
		return strings.Join(slices.Compact(list), " ")
	}
	if len(permits) > 0 {
		hints = append(hints, "Allow what its tools need: worker "+flags(permits))
	}
	if len(accepts) > 0 {
		hints = append(hints, "Change the document, or accept on your own account that it is not done: worker "+flags(accepts))
	}
	return strings.Join(hints, ". ")
}

package main

import (
	"github.com/spf13/cobra"

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

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
)

// parseDefinition reads an agent definition. For a document of another kind the
// error names its kind, and the command that accepts it.
func parseDefinition(name string, data []byte) (*aaif.Document, error) {
	doc, err := aaif.Parse(data, aaif.Options{Name: name, Kind: aaif.KindAgent})
	if err != nil {
		return nil, outcome.Hinted(err, "%s", definitionHint(name, err))
	}
	return doc, nil
}

// definitionHint says what to do about a file that is no agent definition.
func definitionHint(name string, err error) string {
	var refused *aaif.Error
	if errors.As(err, &refused) {
		switch refused.Kind {
		case aaif.KindState:
			return fmt.Sprintf("\"aeemesh runs import %s\" takes it, where its agent is served.", name)
		case aaif.KindManifest:
			return fmt.Sprintf("It says what a platform offers: \"aeemesh validate AGENT... %s\" holds agents against it.", name)
		case aaif.KindReport:
			return fmt.Sprintf("\"aeemesh validate %s\" checks it; there is nothing to run.", name)
		}
	}
	return fmt.Sprintf("\"aeemesh validate %s\" says more.", name)
}

// checkTools refuses --tool programs whose function no document declares;
// otherwise a misspelt name would have no effect.
func checkTools(cmd *cobra.Command, specs []string, docs []*aaif.Document) error {
	var declared, others []string
	for _, doc := range docs {
		for _, t := range doc.Definition().Agent.Tools {
			if t.EffectiveProtocol() == aaif.ProtocolFunction {
				declared = append(declared, t.Name)
			} else {
				others = append(others, t.Name)
			}
		}
	}
	for _, spec := range specs {
		name, _, _ := strings.Cut(spec, "=")
		if slices.Contains(declared, name) {
			continue
		}
		err := &outcome.UsageError{Err: fmt.Errorf("--tool %s: no document declares a function tool of this name", name), Cmd: cmd}
		switch near := aaif.Nearest(name, declared); {
		case slices.Contains(others, name):
			err.Hint = "The tool of that name has another protocol than function, and needs no program."
		case near != "":
			err.Hint = fmt.Sprintf("Did you mean %s?", near)
		case len(declared) > 0:
			err.Hint = "Declared are " + strings.Join(slices.Compact(slices.Sorted(slices.Values(declared))), ", ") + "."
		}
		return err
	}
	return nil
}

// readDefinition reads the file of an agent definition.
func readDefinition(a *session.App, name string) (*aaif.Document, error) {
	data, err := a.ReadFile(name, aaif.DefaultMaxBytes+1)
	if err != nil {
		return nil, err
	}
	return parseDefinition(name, data)
}

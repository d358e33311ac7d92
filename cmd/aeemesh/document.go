package main

import (
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// parseDefinition reads an agent definition. What is something else is told what it
// is, and which command takes it.
func parseDefinition(name string, data []byte) (*aaif.Document, error) {
	doc, err := aaif.Parse(data, aaif.Options{Name: name, Kind: aaif.KindAgent})
	if err == nil {
		return doc, nil
	}
	hint := fmt.Sprintf("\"aeemesh validate %s\" tells more.", name)
	var refused *aaif.Error
	if errors.As(err, &refused) {
		switch refused.Kind {
		case aaif.KindState:
			hint = fmt.Sprintf("\"aeemesh runs import %s\" takes it, where its agent is served.", name)
		case aaif.KindManifest:
			hint = fmt.Sprintf("It says what a platform offers: \"aeemesh validate AGENT... %s\" holds agents against it.", name)
		case aaif.KindReport:
			hint = fmt.Sprintf("\"aeemesh validate %s\" checks it; there is nothing to run.", name)
		}
	}
	return nil, hinted(err, "%s", hint)
}

// readDefinition reads the file of an agent definition.
func (a *app) readDefinition(name string) (*aaif.Document, error) {
	data, err := a.readFile(name, aaif.DefaultMaxBytes+1)
	if err != nil {
		return nil, err
	}
	return parseDefinition(name, data)
}

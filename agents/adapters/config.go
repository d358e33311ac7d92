package adapters

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
	"github.com/aeemesh/aeemesh/mesh"
)

// Config is what an operator permits and provides. Every section is optional;
// the zero Config means the same as no configuration.
type Config struct {
	// Models are the models that documents may name.
	Models Models `json:"models,omitzero"`
	// Budget limits what runs may spend on models. A file may not give a bound
	// of 0, here and in section tree: see [Read].
	Budget agents.Budget `json:"budget,omitzero"`
	// Tree limits the trees of tasks that result when agents call one another.
	Tree mesh.TreeLimits `json:"tree,omitzero"`
	// Telemetry permits agents to report more than the process' own settings
	// say.
	Telemetry Telemetry `json:"telemetry,omitzero"`
	// Outbound says which addresses the tools of documents may reach.
	Outbound outbound.Config `json:"outbound,omitzero"`
	// OpenAPIServers are base URLs that replace the servers of OpenAPI descriptions, by
	// the name of the tool's entry.
	OpenAPIServers map[string]string `json:"openapi_servers,omitzero"`
	// MCPServers are the MCP servers that documents may name, by name.
	MCPServers map[string]mcp.Server `json:"mcp_servers,omitzero"`
	// Secrets says which of the worker's environment variables documents may
	// read.
	Secrets Secrets `json:"secrets,omitzero"`
	// Programs sets the environment of programs that are function tools or
	// agents.
	Programs Programs `json:"programs,omitzero"`
	// Directory says how the subagents of documents are found.
	Directory Directory `json:"directory,omitzero"`
	// Learning says how agents learn from what fits no key of their schema templates, if the
	// worker lets them learn.
	Learning learn.Settings `json:"learning,omitzero"`
	// Vaults are the vaults that documents may name, by their providers.
	Vaults map[aaif.VaultProvider]Vault `json:"vaults,omitzero"`
	// Worker is the settings of the process that reads the file. They are not
	// looked at here.
	Worker jsontext.Value `json:"worker,omitzero"`
}

// Sections returns the names of the sections of a configuration.
func Sections() []string { return membersAt(reflect.TypeFor[Config](), "") }

// Directory is how the agents are found that documents name as their subagents.
// Which files and URLs definitions may be read from is in section outbound.
type Directory struct {
	// RegisteredSkills restricts a reference skill:NAME to agents whose
	// registered definition has the skill. Default: agents that publish the
	// skill themselves count, too.
	RegisteredSkills bool `json:"registered_skills,omitempty"`
}

// MaxConfig is the maximum size of a configuration, in bytes.
const MaxConfig = 1 << 20

// Read reads a configuration in YAML or JSON. It is strict: see the package
// comment. An empty file is the zero Config. A bound of sections budget and tree that
// the file gives is greater than 0.
func Read(data []byte) (Config, error) {
	var c Config
	switch trimmed := bytes.TrimSpace(data); {
	case len(trimmed) > MaxConfig:
		return c, fmt.Errorf("configuration: it is larger than %d bytes", MaxConfig)
	case len(trimmed) == 0:
		return c, nil
	case trimmed[0] == '{':
		data = trimmed
	}
	text, place := data, func(string) (line, column int) { return 0, 0 }
	if data[0] != '{' {
		var err error
		if text, place, err = aaif.YAMLPlaces(data, 0); err != nil {
			var e *aaif.Error // which speaks of an AAIF document
			if errors.As(err, &e) && len(e.Problems) == 1 {
				return c, fmt.Errorf("configuration: %s", e.Problems[0])
			}
			return c, fmt.Errorf("configuration: %w", err)
		}
	}
	if err := jsonv2.Unmarshal(text, &c, jsonv2.RejectUnknownMembers(true)); err != nil {
		return Config{}, fmt.Errorf("configuration: %w", explain(err, place))
	}
	if err := checkBounds(text, place); err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	return c, nil
}

// explain says in the file's words what is wrong with it, and where where that is
// known.
func explain(err error, place func(pointer string) (line, column int)) error {
	var semantic *jsonv2.SemanticError
	if !errors.As(err, &semantic) {
		return err
	}
	at := located(semantic.JSONPointer, place)
	switch {
	case errors.Is(semantic.Err, jsonv2.ErrUnknownName):
		return fmt.Errorf("%s is not known%s", at, didYouMean(semantic.JSONPointer))
	case semantic.Err != nil:
		return fmt.Errorf("%s: %w", at, semantic.Err)
	}
	return fmt.Errorf("%s: %s does not fit", at, kinds[semantic.JSONKind])
}

// kinds are the names of JSON's types in messages.
var kinds = map[jsontext.Kind]string{
	'{': "an object", '[': "a list", '"': "a text", '0': "a number", 't': "true", 'f': "false", 'n': "null",
}

// located is a pointer after its line and column, where they are known.
func located(p jsontext.Pointer, place func(pointer string) (line, column int)) string {
	if p == "" {
		return "the file"
	}
	if line, column := place(string(p)); line > 0 {
		return fmt.Sprintf("%d:%d: %s", line, column, p)
	}
	return string(p)
}

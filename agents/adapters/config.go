package adapters

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
	"github.com/aeemesh/aeemesh/mesh"
)

// Config has the operator's permissions, endpoints and limits. Every section is optional; the zero
// Config means the same as no configuration.
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
	// Worker has the settings of the process that reads the file. This package ignores them.
	Worker jsontext.Value `json:"worker,omitzero"`

	place placer // of its values, if it was read from a file
}

// Directory configures how the subagents of documents are found. Section outbound says from which
// files and URLs definitions may be read.
type Directory struct {
	// RegisteredSkills restricts a reference skill:NAME to agents whose
	// registered definition has the skill. Default: agents that publish the
	// skill themselves count, too.
	RegisteredSkills bool `json:"registered_skills,omitempty"`
}

// MaxConfig is the maximum size of a configuration, in bytes.
const MaxConfig = 1 << 20

// Read reads a configuration in YAML or JSON. It is strict: see the package comment. An empty file
// is the zero Config. Bounds in sections budget and tree must be greater than 0.
func Read(data []byte) (Config, error) {
	c, bad := read(data)
	if err := bad.err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// Check returns all problems that [Read] and [New] find in a configuration, in the order of the
// file. Like them it connects to nothing. If amend is not nil, it may change the configuration
// before New gets it.
func Check(data []byte, amend func(*Config), opts Options) []*Problem {
	c, bad := read(data)
	if len(bad.all) == 1 && bad.all[0].Pointer == "" {
		return bad.all
	}
	if amend != nil {
		amend(&c)
	}
	s, more := open(c, opts)
	_ = s.Close() // nothing was connected
	unread := slices.Clone(bad.all)
	for _, p := range more.all {
		// The missing value may be one that could not be read.
		if !slices.ContainsFunc(unread, func(u *Problem) bool { return strings.HasPrefix(u.Pointer+"/", p.Pointer+"/") }) {
			bad.all = append(bad.all, p)
		}
	}
	_ = bad.err() // sorts them
	return bad.all
}

// maxUnread bounds the reported values that do not fit.
const maxUnread = 50

// read reads the values that fit into a configuration, and reports the others.
func read(data []byte) (Config, *problems) {
	bad := &problems{}
	text, err := bad.parse(data)
	if err != nil || text == nil {
		return Config{}, bad
	}
	for {
		c := Config{place: bad.place}
		err := jsonv2.Unmarshal(text, &c, jsonv2.RejectUnknownMembers(true))
		if err == nil {
			bad.checkBounds(text)
			return c, bad
		}
		at := bad.explain(err)
		if at == "" || len(bad.all) == maxUnread {
			return Config{}, bad
		}
		if text, err = without(text, at); err != nil {
			return Config{}, bad
		}
	}
}

// parse converts a file to JSON, and records the places of its values; nil if the file is empty.
func (ps *problems) parse(data []byte) (jsontext.Value, error) {
	trimmed := bytes.TrimSpace(data)
	switch {
	case len(trimmed) > MaxConfig:
		err := fmt.Errorf("it is larger than %d bytes", MaxConfig)
		ps.add("", err.Error(), err)
		return nil, err
	case len(trimmed) == 0:
		return nil, nil
	case trimmed[0] == '{':
		ps.place = aaif.JSONPlaces(data)
		return jsontext.Value(trimmed), nil
	}
	text, place, err := aaif.YAMLPlaces(data, 0)
	ps.place = place
	var e *aaif.Error // its text is about an AAIF document
	switch {
	case errors.As(err, &e) && len(e.Problems) == 1:
		p := e.Problems[0]
		line, column := p.Line, p.Column
		p.Line, p.Column = 0, 0
		ps.all = append(ps.all, &Problem{Line: line, Column: column, Message: p.String(), Err: err})
	case err != nil:
		ps.add("", err.Error(), err)
	}
	return text, err
}

// explain reports a problem in terms of the configuration file, and returns its place; "" means the
// whole file.
func (ps *problems) explain(err error) jsontext.Pointer {
	var semantic *jsonv2.SemanticError
	if !errors.As(err, &semantic) {
		ps.add("", err.Error(), err)
		return ""
	}
	at, name := semantic.JSONPointer, string(semantic.JSONPointer)
	if name == "" {
		name = "the file"
	}
	switch {
	case errors.Is(semantic.Err, jsonv2.ErrUnknownName):
		ps.add(at, name+" is not known"+didYouMean(at), err)
	case semantic.Err != nil && !errors.Is(semantic.Err, strconv.ErrSyntax):
		ps.add(at, name+": "+semantic.Err.Error(), err)
	default:
		ps.add(at, fmt.Sprintf("%s: %s does not fit%s", name, kinds[semantic.JSONKind], wanted(semantic.GoType)), err)
	}
	return at
}

// without returns a JSON text without the value at a pointer. An element of a list
// becomes null, so that the others keep their places.
func without(text jsontext.Value, at jsontext.Pointer) (jsontext.Value, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var whole any
	if err := dec.Decode(&whole); err != nil {
		return nil, err
	}
	parent := whole
	for token := range at.Parent().Tokens() {
		switch v := parent.(type) {
		case map[string]any:
			parent = v[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i >= len(v) {
				return nil, fmt.Errorf("there is no %s", at)
			}
			parent = v[i]
		}
	}
	last := at.LastToken()
	switch v := parent.(type) {
	case map[string]any:
		delete(v, last)
	case []any:
		if i, err := strconv.Atoi(last); err == nil && i < len(v) {
			v[i] = nil
		}
	}
	return json.Marshal(whole)
}

// wanted describes the kind of value that a place needs; "" if the Go type does not determine it.
func wanted(t reflect.Type) string {
	if t == nil {
		return ""
	}
	switch t.Kind() {
	case reflect.Bool:
		return ": it has to be true or false"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return ": it has to be a whole number"
	case reflect.Float64:
		return ": it has to be a number"
	case reflect.String:
		return ": it has to be a text"
	case reflect.Slice:
		return ": it has to be a list"
	case reflect.Map, reflect.Struct:
		return ": it has to be an object"
	}
	return ""
}

// kinds are the names of JSON's types in messages.
var kinds = map[jsontext.Kind]string{
	'{': "an object", '[': "a list", '"': "a text", '0': "a number", 't': "true", 'f': "false", 'n': "null",
}

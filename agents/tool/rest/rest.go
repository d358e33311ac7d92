package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/endpoint"
)

// Open makes a source of the only tool of an entry of protocol http. It makes
// no connection. The error says what is wrong with the entry, or what the
// policy does not permit.
func Open(entry *aaif.Tool, access outbound.Access) (tool.Source, error) {
	t, err := New(entry, access)
	if err != nil {
		return nil, err
	}
	return tool.Static(t), nil
}

// Tool is one endpoint. It is safe for concurrent use.
type Tool struct {
	def      tool.Definition
	template *template
	fixed    []string // query parameters of the template that no argument may repeat
	endpoint endpoint.Endpoint
}

// Check reports what is wrong with an entry's endpoint, whatever a policy
// permits.
func Check(entry *aaif.Tool) error {
	_, err := parse(entry)
	return err
}

// parse parses an entry's endpoint. Its placeholders must be arguments of the
// entry.
func parse(entry *aaif.Tool) (*template, error) {
	template, err := parseTemplate(entry.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	if err := declares(entry.ParametersSchema, template.places()); err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	return template, nil
}

// New makes a tool from an entry; see [Open].
func New(entry *aaif.Tool, access outbound.Access) (*Tool, error) {
	template, err := parse(entry)
	if err != nil {
		return nil, err
	}
	u, err := access.Policy.Check(template.example())
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	client, err := access.Client(u, entry.Auth)
	if err != nil {
		return nil, err
	}
	def := tool.Definition{Name: entry.Name, Description: entry.Description, Parameters: entry.ParametersSchema, Output: entry.OutputSchema}
	if err := def.Validate(); err != nil {
		return nil, err
	}
	return &Tool{def: def, template: template, fixed: undeclared(entry.ParametersSchema, template.names()),
		endpoint: endpoint.Endpoint{Tool: def.Name, Method: template.method, Access: access, Client: client}}, nil
}

// undeclared returns the names that are not declared as arguments. A schema may permit a model to
// add any argument, and servers differ in which of two parameters with one name counts.
func undeclared(schema json.RawMessage, names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return declares(schema, []string{name}) == nil })
}

// declares checks that the placeholders are declared as arguments.
func declares(schema json.RawMessage, places []string) error {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if len(schema) > 0 {
		if err := json.Unmarshal(schema, &s); err != nil {
			return errors.New("parameters_schema is no schema of an object")
		}
	}
	for _, name := range places {
		if _, ok := s.Properties[name]; !ok {
			return fmt.Errorf("{%s} is no property of parameters_schema", name)
		}
	}
	return nil
}

// Definition returns the entry's definition.
func (t *Tool) Definition() tool.Definition { return t.def }

// RepeatSafe reports whether the method is idempotent.
func (t *Tool) RepeatSafe() bool { return t.endpoint.RepeatSafe() }

// Call makes one request.
func (t *Tool) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	return t.endpoint.Call(ctx, args, t.request)
}

// request makes the request of a call.
func (t *Tool) request(args map[string]json.RawMessage) (outbound.Request, error) {
	u, err := t.template.fill(args)
	if err != nil {
		return outbound.Request{}, err
	}
	r := outbound.Request{URL: u}
	switch t.template.method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		r.Type = "application/json"
		r.Body, err = json.Marshal(args)
		return r, err
	}
	for name := range args {
		if slices.ContainsFunc(t.fixed, func(fixed string) bool { return strings.EqualFold(fixed, name) }) {
			return outbound.Request{}, fmt.Errorf("argument %s: the endpoint has this parameter already", name)
		}
	}
	addQuery(u, args)
	return r, nil
}

// addQuery adds arguments to a query, in the order of their names.
func addQuery(u *url.URL, args map[string]json.RawMessage) {
	for _, name := range slices.Sorted(maps.Keys(args)) {
		for _, value := range queryValues(args[name]) {
			if u.RawQuery != "" {
				u.RawQuery += "&"
			}
			u.RawQuery += url.QueryEscape(name) + "=" + url.QueryEscape(value)
		}
	}
}

// queryValues returns the values of one argument.
func queryValues(raw json.RawMessage) []string {
	if string(raw) == "null" {
		return nil
	}
	if text, ok := outbound.Scalar(raw); ok {
		return []string{text}
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return []string{string(raw)}
	}
	var all []string
	for _, item := range items {
		text, ok := outbound.Scalar(item)
		if !ok {
			text = string(item)
		}
		all = append(all, text)
	}
	return all
}

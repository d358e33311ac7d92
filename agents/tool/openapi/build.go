package openapi

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/endpoint"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// builder makes the tools of one description.
type builder struct {
	source  *Source
	doc     *openapi3.T
	root    *url.URL // the description's URL
	clients map[clientKey]*outboundClient

	patterns map[string]bool // regular expressions, and whether they can be used
	spent    int             // the sum of their sizes
}

// maxParams is how many parameters an operation may have.
const maxParams = 100

// place matches a placeholder in a path.
var place = pattern.Of(`\{([^{}/]+)\}`)

// build makes a tool from an operation. single says that it is the entry's only
// one.
func (b *builder) build(f found, single bool) (*Operation, error) {
	server, err := b.server(f)
	if err != nil {
		return nil, err
	}
	client, err := b.client(f, server)
	if err != nil {
		return nil, err
	}
	o := &Operation{path: strings.TrimSuffix(server.EscapedPath(), "/") + f.path, server: server,
		endpoint: endpoint.Endpoint{Tool: f.name, Method: f.method, Access: b.source.access, Client: client.client}}
	parameters, err := b.parameters(f, client)
	if err != nil {
		return nil, err
	}
	c := newConverter(b.doc.IsOpenAPI30(), false, maxSchemas, b.usable)
	for _, p := range parameters {
		if err := c.count(schemaOf(p)); err != nil {
			return nil, err
		}
	}
	content, err := bodyOf(f.op)
	if err != nil {
		return nil, err
	}
	if content == nil && f.op.RequestBody != nil {
		b.source.log.Warn("a body is left out: it is neither JSON, a form nor plain text", "operation", f.String())
	}
	if content != nil {
		if err := c.count(content.schema); err != nil {
			return nil, err
		}
	}
	properties, required := make(map[string]any), []string{}
	add := func(arg, description string, schema any, needed bool) {
		if m, ok := schema.(map[string]any); ok && description != "" && m["description"] == nil {
			m["description"] = clipText(description, 1000)
		}
		properties[arg] = schema
		if needed {
			required = append(required, arg)
		}
	}
	for _, p := range parameters {
		q, err := newParam(p)
		if err != nil {
			return nil, err
		}
		q.arg = argName(p, properties, content != nil)
		o.params = append(o.params, *q)
		add(q.arg, p.Description, c.convert(schemaOf(p)), q.required)
	}
	if content != nil {
		o.body = content
		add(bodyArg, content.description, c.convert(content.schema), content.required)
	}
	if err := o.complete(f.path); err != nil {
		return nil, err
	}
	if _, err := b.source.access.Policy.Check(o.example()); err != nil {
		return nil, err
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	o.def = tool.Definition{Name: f.name, Description: describe(f), Output: plainOutput(f.op, b.doc.IsOpenAPI30(), b.usable)}
	if single {
		o.def.Description = b.source.entry.Description
		if len(b.source.entry.OutputSchema) > 0 {
			o.def.Output = b.source.entry.OutputSchema
		}
	}
	if o.def.Parameters, err = c.finish(schema); err != nil {
		return nil, err
	}
	return o, o.def.Validate()
}

// parameters returns the parameters of an operation and its path, the
// operation's own first, without those that are not arguments.
func (b *builder) parameters(f found, client *outboundClient) ([]*openapi3.Parameter, error) {
	var all []*openapi3.Parameter
	for _, ref := range slices.Concat(f.op.Parameters, f.item.Parameters) {
		if ref == nil || ref.Value == nil {
			continue
		}
		p := ref.Value
		if slices.ContainsFunc(all, func(q *openapi3.Parameter) bool { return q.Name == p.Name && q.In == p.In }) {
			continue
		}
		if p.In == "header" && http.CanonicalHeaderKey(p.Name) == http.CanonicalHeaderKey(client.header) {
			continue // the credential's header
		}
		q, err := newParam(p)
		switch {
		case err != nil && p.Required:
			return nil, err
		case err != nil:
			b.source.log.Warn("a parameter is left out", "operation", f.String(), "err", err)
		case q != nil:
			all = append(all, p)
		}
	}
	if len(all) > maxParams {
		return nil, fmt.Errorf("it has more than %d parameters", maxParams)
	}
	return all, nil
}

// argName returns a unique name for a parameter among the arguments.
func argName(p *openapi3.Parameter, taken map[string]any, body bool) string {
	base := legal(p.Name, "-.", 56)
	free := func(name string) bool { return taken[name] == nil && !(body && name == bodyArg) }
	if free(base) {
		return base
	}
	name := base + "_" + p.In
	for k := 2; !free(name); k++ {
		name = fmt.Sprintf("%s_%s%d", base, p.In, k)
	}
	return name
}

// bodyArg is the argument with the body of a request.
const bodyArg = "body"

// body describes an operation's body.
type body struct {
	kind        string // application/json, application/x-www-form-urlencoded or text/plain, as in the description
	schema      *openapi3.SchemaRef
	description string
	required    bool
	encoding    map[string]param // of a form's members, of those that have one
}

const formType = "application/x-www-form-urlencoded"

// bodyOf chooses the encoding of the body: JSON, a form, or plain text. nil: no
// body.
func bodyOf(op *openapi3.Operation) (*body, error) {
	if op.RequestBody == nil || op.RequestBody.Value == nil {
		return nil, nil
	}
	r := op.RequestBody.Value
	kinds := slices.Sorted(maps.Keys(r.Content))
	chosen := ""
	for _, fits := range []func(string) bool{
		func(k string) bool { return k == "application/json" },
		isJSON,
		func(k string) bool { return k == "*/*" || k == "application/*" },
		func(k string) bool { return strings.HasPrefix(k, formType) },
		func(k string) bool { return strings.HasPrefix(k, "text/plain") },
	} {
		if i := slices.IndexFunc(kinds, fits); i >= 0 && chosen == "" {
			chosen = kinds[i]
		}
	}
	switch {
	case chosen == "" && !r.Required:
		return nil, nil
	case chosen == "":
		return nil, fmt.Errorf("its body can be %q, and neither JSON, a form nor plain text", clip.Text(strings.Join(kinds, ", "), 200))
	}
	out := &body{kind: chosen, description: r.Description, required: r.Required}
	if media := r.Content[chosen]; media != nil {
		out.schema, out.encoding = media.Schema, encodings(media)
	}
	if strings.HasSuffix(chosen, "/*") {
		out.kind = "application/json"
	}
	return out, nil
}

// encodings reads the Encoding Objects of a form, and leaves out unsupported ones.
func encodings(media *openapi3.MediaType) map[string]param {
	all := make(map[string]param)
	for name, e := range media.Encoding {
		switch {
		case e == nil:
		case e.Style != "" || e.Explode != nil:
			if p, err := newParam(&openapi3.Parameter{Name: name, In: "query", Style: e.Style, Explode: e.Explode}); err == nil {
				all[name] = *p
			}
		case isJSON(e.ContentType):
			all[name] = param{name: name, style: "form", json: true}
		}
	}
	return all
}

// complete checks that every placeholder of the path has a parameter.
func (o *Operation) complete(path string) error {
	for _, m := range place.RE().FindAllStringSubmatch(path, -1) {
		if !slices.ContainsFunc(o.params, func(p param) bool { return p.in == "path" && p.name == m[1] }) {
			return fmt.Errorf("its path has {%s}, which is no parameter", clip.Text(m[1], 100))
		}
	}
	if strings.ContainsAny(place.RE().ReplaceAllString(path, ""), "{}?#\\") || !strings.HasPrefix(path, "/") {
		return fmt.Errorf("its path %q is no path", clip.Text(path, 200))
	}
	if outbound.CheckSegment(place.RE().ReplaceAllString(path, "x")) != nil {
		return fmt.Errorf("its path %q leads out of the server's path", clip.Text(path, 200))
	}
	return nil
}

// describe returns an operation's description for a model.
func describe(f found) string {
	text := f.op.Summary
	if f.op.Description != "" && f.op.Description != text {
		text = strings.TrimSpace(text + "\n" + f.op.Description)
	}
	if text = clipText(text, 1000); text == "" {
		text = f.String()
	}
	if f.op.Deprecated {
		text += " (deprecated)"
	}
	return text
}

// example is a URL of the operation with every placeholder filled in.
func (o *Operation) example() string {
	return o.server.Scheme + "://" + o.server.Host + place.RE().ReplaceAllString(o.path, "x")
}

package openapi

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

	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/endpoint"
)

// Operation is a tool: one operation of a description. It is safe for concurrent
// use.
type Operation struct {
	def      tool.Definition
	path     string // escaped, with places
	server   *url.URL
	params   []param
	body     *body // nil is none
	endpoint endpoint.Endpoint
}

// Definition returns what the description says.
func (o *Operation) Definition() tool.Definition { return o.def }

// RepeatSafe reports whether the method is idempotent.
func (o *Operation) RepeatSafe() bool { return o.endpoint.RepeatSafe() }

// Call makes one request.
func (o *Operation) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	return o.endpoint.Call(ctx, args, o.request)
}

// request makes the request of a call.
func (o *Operation) request(args map[string]json.RawMessage) (outbound.Request, error) {
	r := outbound.Request{Header: make(http.Header)}
	filled, query, cookies := make(map[string]string), []string(nil), []string(nil)
	for _, p := range o.params {
		v, there, err := p.valueOf(args[p.arg])
		if err == nil && !there {
			if p.in == "path" {
				return r, fmt.Errorf("argument %s is missing", p.arg)
			}
			continue
		}
		if err == nil {
			switch p.in {
			case "path":
				filled[p.name], err = p.inPath(v)
			case "query":
				query = append(query, p.inQuery(v)...)
			case "cookie":
				cookies = append(cookies, p.inCookie(v)...)
			case "header":
				var text string
				if text, err = p.inHeader(v); err == nil {
					r.Header.Set(p.name, text)
				}
			}
		}
		if err != nil {
			return r, fmt.Errorf("argument %s: %w", p.arg, err)
		}
	}
	if len(cookies) > 0 {
		r.Header.Set("Cookie", strings.Join(cookies, "; "))
	}
	var err error
	if r.URL, err = o.url(filled, query); err != nil {
		return r, err
	}
	return r, o.writeBody(&r, args[bodyArg])
}

// url returns the server's URL with the path, its placeholders filled in, and
// the query.
func (o *Operation) url(filled map[string]string, query []string) (*url.URL, error) {
	segments := strings.Split(o.path, "/")
	for i, segment := range segments {
		if !strings.Contains(segment, "{") {
			continue
		}
		segments[i] = place.RE().ReplaceAllStringFunc(segment, func(p string) string { return filled[p[1:len(p)-1]] })
		if err := outbound.CheckSegment(segments[i]); err != nil {
			return nil, fmt.Errorf("the arguments together: %w", err)
		}
	}
	text := o.server.Scheme + "://" + o.server.Host + strings.Join(segments, "/")
	if len(query) > 0 {
		text += "?" + strings.Join(query, "&")
	}
	return outbound.FilledURL(text)
}

// writeBody writes the body.
func (o *Operation) writeBody(r *outbound.Request, raw json.RawMessage) error {
	if o.body == nil || len(raw) == 0 {
		return nil
	}
	r.Type = o.body.kind
	switch {
	case isJSON(o.body.kind):
		r.Body = raw
	case strings.HasPrefix(o.body.kind, formType):
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil || members == nil {
			return errors.New("argument body: a form is written from an object")
		}
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(members)) {
			p, ok := o.body.encoding[name]
			if !ok {
				p = param{name: name, style: "form", explode: true, json: strings.HasPrefix(string(members[name]), "{")}
			}
			v, there, err := p.valueOf(members[name])
			if err != nil {
				return fmt.Errorf("argument body: %s: %w", name, err)
			}
			if there {
				pairs = append(pairs, p.inQuery(v)...)
			}
		}
		r.Body = []byte(strings.Join(pairs, "&"))
	default:
		text, ok := outbound.Scalar(raw)
		if !ok {
			text = string(raw)
		}
		r.Body = []byte(text)
	}
	return nil
}

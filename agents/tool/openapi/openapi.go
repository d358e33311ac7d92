package openapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/endpoint"
)

// Options are the operator's settings for one entry.
type Options struct {
	// Server replaces the servers that the description names: a base URL, which the
	// policy has to allow like any other.
	Server string

	// Logger receives which parts of a description were left out. Default:
	// discarded.
	Logger *slog.Logger
}

// pause is the delay before a description is read again after a failure.
const pause = 5 * time.Second

// Open makes a source for an entry of protocol openapi. It reads nothing yet.
// The error says what is wrong with the entry, or what the policy does not
// permit.
func Open(entry *aaif.Tool, access outbound.Access, o Options) (*Source, error) {
	s := &Source{entry: entry, access: access, log: o.Logger, turn: make(chan struct{}, 1)}
	s.log = cmp.Or(s.log, slog.New(slog.DiscardHandler))
	s.log = s.log.With("entry", entry.Name)
	location, fragment, selects := strings.Cut(strings.TrimSpace(entry.Endpoint), "#")
	if location == "" {
		return nil, errors.New("endpoint: the URL or the path of an OpenAPI description is missing")
	}
	s.location = location
	if selects {
		plain, err := url.PathUnescape(fragment)
		if err != nil {
			return nil, fmt.Errorf("endpoint: the fragment %.100q is no list of operations", fragment)
		}
		for part := range strings.SplitSeq(plain, ",") {
			if part = strings.TrimSpace(part); part != "" {
				s.wanted = append(s.wanted, part)
			}
		}
	}
	if strings.Contains(location, "://") && !strings.HasPrefix(location, "file://") {
		u, err := access.Policy.Check(location)
		if err != nil {
			return nil, fmt.Errorf("endpoint: %w", err)
		}
		s.remote = u
		// Report unsupported settings of the auth block now, not at the first
		// call. For these two types the description may complete the settings.
		if auth := entry.Auth; auth != nil && auth.Type != aaif.AuthAWSSigV4 && (auth.Type != aaif.AuthOAuth2 || auth.TokenURL != "") {
			if _, err := access.Client(u, auth); err != nil {
				return nil, err
			}
		}
	}
	if o.Server != "" {
		u, err := access.Policy.Check(o.Server)
		if err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
		s.server = u
	}
	return s, nil
}

// Source is one description. It is safe for concurrent use.
type Source struct {
	entry    *aaif.Tool
	access   outbound.Access
	log      *slog.Logger
	location string
	remote   *url.URL // of location, if it is not a file
	wanted   []string // operations; empty: all
	server   *url.URL // the operator's; nil: the description's

	turn   chan struct{} // a mutex that can be waited for with a context; it guards the following fields
	tools  []tool.Tool
	failed error
	again  time.Time // until then, failed is returned
}

// Tools reads the description, if it was not read before, and returns its
// tools. An error is a [tool.Error]; a description that is not available is a
// [tool.ErrUnavailable], and is read again some seconds later.
func (s *Source) Tools(ctx context.Context) ([]tool.Tool, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch {
	case s.tools != nil:
		return slices.Clone(s.tools), nil
	case s.failed != nil && time.Now().Before(s.again):
		return nil, s.failed
	}
	tools, err := s.load(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		s.failed, s.again = s.failure(err), time.Now().Add(pause)
		return nil, s.failed
	}
	s.tools, s.failed = tools, nil
	return slices.Clone(tools), nil
}

// Close does nothing: connections belong to the policy.
func (s *Source) Close() error { return nil }

// load reads the description and makes its tools.
func (s *Source) load(ctx context.Context) ([]tool.Tool, error) {
	doc, root, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	found, err := s.operations(doc)
	if err != nil {
		return nil, err
	}
	if len(s.entry.ParametersSchema) > 0 {
		s.log.Warn("parameters_schema is not used: the OpenAPI description has its own")
	}
	b := builder{source: s, doc: doc, root: root, clients: make(map[clientKey]*outboundClient), patterns: make(map[string]bool)}
	var tools []tool.Tool
	var last error
	for _, f := range found {
		if len(found) == 1 {
			f.name = s.entry.Name
		}
		t, err := b.build(f, len(found) == 1)
		if err != nil {
			last = err
			s.log.Warn("an operation is left out", "operation", f.String(), "err", err)
			continue
		}
		tools = append(tools, t)
	}
	if len(tools) == 0 {
		return nil, fmt.Errorf("none of its operations can be offered: %w", last)
	}
	return tools, nil
}

// failure converts an error of reading the description.
func (s *Source) failure(err error) error {
	kind, message := tool.ErrFailed, err.Error()
	var f *outbound.Failure
	switch {
	case errors.As(err, &f):
		kind = endpoint.Kind(f)
		message = "its OpenAPI description cannot be fetched: " + f.Message
		err = f.Err
		switch {
		case errors.Is(err, outbound.ErrRefused): // also after a redirect
			kind = tool.ErrRefused
		case kind == tool.ErrFailed || kind == tool.ErrTimeout:
			kind = tool.ErrUnavailable
		}
	case errors.Is(err, outbound.ErrRefused):
		kind = tool.ErrRefused
	}
	return &tool.Error{Kind: kind, Tool: s.entry.Name, Message: message, Err: err}
}

package mcp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Limits of a server's list.
const (
	maxListed      = 1024     // tools
	maxPages       = 100      //
	maxDescription = 16 << 10 // bytes
	maxCatalogue   = 4 << 20  // bytes of all names, descriptions and schemas
	maxReceived    = 8 << 20  // bytes of all pages, with what is not kept here; the SDK may keep it
	pageCost       = 1 << 10  // bytes in memory of a page without content
)

// catalogue is a server's last list.
type catalogue struct{ tools []remote }

// remote is a tool in its server's description.
type remote struct {
	name        string // the server's
	legal       string // a name that models and AAIF accept
	description string
	input       json.RawMessage
	output      json.RawMessage
	repeatable  bool // the server says that it is safe to repeat
}

func (c *catalogue) find(name string) *remote {
	for i := range c.tools {
		if c.tools[i].name == name {
			return &c.tools[i]
		}
	}
	return nil
}

// refreshTime is how long a run waits for the new list of a server that has not said that its list
// has changed. After that, it uses the known list.
const refreshTime = 5 * time.Second

// catalogue returns the server's tools: the known list, or, after a change or in a new session, a
// new one. Without a session, the last list is used.
func (l *link) catalogue(ctx context.Context) (*catalogue, error) {
	if known := l.meanwhile(ctx); known != nil {
		return known, nil
	}
	select {
	case l.listing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.listing }()
	s, err := l.session(ctx)
	l.mu.Lock()
	known, stale := l.list, l.stale
	old := err == nil && l.isOld(s)
	if err == nil && (known == nil || stale || old) {
		l.stale, s.missed, l.asked = false, false, time.Now() // a change from here on makes the new list stale, too
	}
	l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && known != nil, err == nil && known != nil && !stale && !old:
		return known, nil
	case err != nil:
		return nil, err
	}
	asking, cancel := ctx, context.CancelFunc(func() {})
	if known != nil && !stale {
		asking, cancel = context.WithTimeout(ctx, refreshTime)
	}
	fresh, err := l.ask(asking, s)
	cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		s.missed, l.stale = true, l.stale || stale || known == nil
		if known != nil && ctx.Err() == nil {
			l.log.Warn("mcp server does not list its tools, the last list holds", "err", plain(err))
			return known, nil
		}
		return nil, err
	}
	l.list = fresh
	return fresh, nil
}

// ask requests the server's tools, page by page.
func (l *link) ask(ctx context.Context, s *session) (*catalogue, error) {
	if caps := s.InitializeResult().Capabilities; caps == nil || caps.Tools == nil {
		return &catalogue{}, nil
	}
	reading := newListing(l.cfg, l.log)
	params := &sdk.ListToolsParams{}
	for range maxPages {
		var seen note
		page, err := s.ListTools(context.WithValue(ctx, noteOfCall{}, &seen), params)
		if err != nil {
			if l.hoards(s) {
				l.log.Warn("mcp session is ended, because its lists fail again and again")
				l.drop(s)
			}
			return nil, l.classify(ctx, err, &seen, "it does not list its tools")
		}
		size := pageCost + len(encode(page))
		l.mu.Lock()
		if s.listed == nil {
			s.listed = make(map[string]int)
		}
		s.listed[params.Cursor] = size
		l.mu.Unlock()
		if !reading.add(page.Tools) || page.NextCursor == "" || page.NextCursor == params.Cursor {
			break
		}
		if reading.received -= size; reading.received < 0 {
			l.log.Warn("mcp server lists more than is read, the rest is left out", "most", maxReceived)
			break
		}
		params = &sdk.ListToolsParams{Cursor: page.NextCursor}
	}
	return reading.catalogue(), nil
}

// hoards reports whether the SDK keeps more of a session's lists than one list may have. It keeps
// each page by its cursor until the server says that its list has changed, also those of lists
// that failed at a later page.
func (l *link) hoards(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := 0
	for _, size := range s.listed {
		kept += size
	}
	return kept > maxReceived && s.InitializeResult().ProtocolVersion >= "2026-07-28"
}

// listing makes a catalogue from a server's list, page by page, so that a page
// is not in memory any more when the next one comes.
type listing struct {
	cfg   *Config
	log   *slog.Logger
	tools []remote
	seen  map[string]bool
	count int // of all tools that were listed
	left  int // bytes

	received int // bytes of further pages
}

func newListing(cfg *Config, log *slog.Logger) *listing {
	return &listing{cfg: cfg, log: log, seen: make(map[string]bool), left: maxCatalogue, received: maxReceived}
}

// add adds a page, and reports whether another one may follow.
func (c *listing) add(page []*sdk.Tool) bool {
	for _, t := range page {
		if c.count++; c.count > maxListed {
			c.log.Warn("mcp server lists too many tools, the rest is left out", "most", maxListed)
			return false
		}
		switch {
		case t == nil || t.Name == "" || len(t.Name) > 256 || !utf8.ValidString(t.Name):
			c.log.Warn("a tool of an mcp server is left out: its name cannot be used")
			continue
		case c.seen[t.Name]:
			c.log.Warn("a tool of an mcp server is left out: it is listed twice", "tool", t.Name)
			continue
		}
		r := remote{name: t.Name, description: c.cfg.shortened(cmp.Or(t.Description, t.Title, t.Name), maxDescription)}
		var err error
		if r.input, err = schemaOf(t, "inputSchema", t.InputSchema); err == nil {
			r.output, err = schemaOf(t, "outputSchema", t.OutputSchema)
		}
		if err != nil {
			c.log.Warn("a tool of an mcp server is left out", "tool", t.Name, "err", err)
			continue
		}
		if c.left -= len(r.name) + len(r.description) + len(r.input) + len(r.output); c.left < 0 {
			c.log.Warn("mcp server describes its tools at too great a length, the rest is left out", "most", maxCatalogue, "from", t.Name)
			return false
		}
		if a := t.Annotations; a != nil {
			r.repeatable = a.ReadOnlyHint || a.IdempotentHint
		}
		c.seen[t.Name] = true
		c.tools = append(c.tools, r)
	}
	return true
}

// catalogue returns the tools that were added.
func (c *listing) catalogue() *catalogue {
	names := make([]string, len(c.tools))
	for i, r := range c.tools {
		names[i] = r.name
	}
	legal := legalNames(names)
	for i := range c.tools {
		c.tools[i].legal = legal[c.tools[i].name]
	}
	return &catalogue{c.tools}
}

// schemaOf returns a schema of a tool as text, with exact numbers if they are known; nil for
// none. The guard around the tool compiles it.
func schemaOf(t *sdk.Tool, name string, v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	raw := encode(v)
	if exact, ok := t.Meta[exactKey+"/"+name].(string); ok && json.Valid([]byte(exact)) {
		raw = json.RawMessage(exact)
	}
	if !bytes.HasPrefix(raw, []byte("{")) {
		return nil, errors.New("its schema is no object")
	}
	return raw, nil
}

// legalNames maps names of any characters to names that AAIF allows: a letter
// or underscore, then up to 63 letters, digits, underscores or hyphens. A legal
// name is kept; in other names every other character becomes an underscore. If
// the result is not unique, or too long, it ends with a part of the name's
// hash. The mapping depends on the set of names only, not on their order.
func legalNames(names []string) map[string]string {
	const longest = 64
	plain := make(map[string]string, len(names))
	users := make(map[string]int, len(names))
	for _, name := range names {
		p := strings.Map(func(r rune) rune {
			if r == '_' || r == '-' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
				return r
			}
			return '_'
		}, name)
		if p[0] == '-' || '0' <= p[0] && p[0] <= '9' {
			p = "_" + p
		}
		plain[name] = p
		users[p]++
	}
	for _, name := range names {
		p := plain[name]
		if p == name && len(p) <= longest || users[p] == 1 && len(p) <= longest {
			continue
		}
		sum := sha256.Sum256([]byte(name))
		plain[name] = fmt.Sprintf("%s_%s", p[:min(len(p), longest-17)], hex.EncodeToString(sum[:8]))
	}
	return plain
}

// shortened removes credentials from a server's text, truncates it to n bytes, and makes it valid
// UTF-8.
func (c *Config) shortened(s string, n int) string {
	return clip.Text(strings.ToValidUTF8(c.Redactor.Scrub(s), "\ufffd"), n)
}

package directory

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// cell caches one definition, or the error of reading it.
type cell struct {
	busy chan struct{} // held by the goroutine that fetches it
	got  fetched       // guarded by the directory's lock
}

type fetched struct {
	def     *aaif.Definition
	err     error
	version version   // of the registration when it was fetched
	until   time.Time // when it expires; zero: when the version changes
	known   bool
}

// version names one registration. A bucket that was made again has another one with the same
// revision. A definition that is not registered has none.
type version struct {
	revision uint64
	stored   int64 // the time, in nanoseconds
}

func (f *fetched) fresh(of version) bool {
	return f.known && f.version == of && (f.until.IsZero() || time.Now().Before(f.until))
}

// cached returns a cached definition, or fetches it; concurrent callers wait
// for the same fetch.
func (d *Directory) cached(ctx context.Context, key string, of version, fetch func(context.Context) (*aaif.Definition, time.Duration, error)) fetched {
	d.mu.Lock()
	c := d.cells[key]
	if c == nil {
		if len(d.cells) >= maxCells {
			for other := range d.cells { // evict any one: it can be fetched again
				delete(d.cells, other)
				break
			}
		}
		c = &cell{busy: make(chan struct{}, 1)}
		d.cells[key] = c
	}
	got := c.got
	d.mu.Unlock()
	if got.fresh(of) {
		return got
	}
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	case <-ctx.Done():
		return fetched{err: context.Cause(ctx)}
	}
	d.mu.Lock()
	got = c.got
	d.mu.Unlock()
	if got.fresh(of) {
		return got
	}
	def, keep, err := fetch(ctx)
	got = fetched{def: def, err: err, version: of, known: ctx.Err() == nil}
	if keep > 0 {
		got.until = time.Now().Add(keep)
	}
	d.mu.Lock()
	c.got = got
	d.mu.Unlock()
	return got
}

// file resolves a reference to a definition in a file.
func (v *View) file(ctx context.Context, ref, rest string) (orchestrate.Member, error) {
	name, err := v.path(rest)
	if err != nil {
		return orchestrate.Member{}, unknown(ref, "it names no file here", "such a one is file:///srv/agents/x.yaml, or file:x.yaml beside the document", err)
	}
	got := v.dir.cached(ctx, "file:"+name, version{}, func(context.Context) (*aaif.Definition, time.Duration, error) {
		data, at, err := v.dir.cfg.Policy.ReadFile(name, aaif.DefaultMaxBytes)
		if err != nil {
			return nil, fileFresh, err
		}
		def, err := parse(filepath.Base(at), data)
		return def, fileFresh, err
	})
	if got.err != nil {
		return orchestrate.Member{}, unknown(ref, "its definition cannot be fetched", "", got.err)
	}
	return v.dir.defined(ctx, ref, got.def)
}

// path returns the file that a reference names: an absolute path, or one
// relative to the folder of the asker's document if that is known.
func (v *View) path(rest string) (string, error) {
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		host, _, _ := strings.Cut(after, "/")
		if host != "" && !strings.EqualFold(host, "localhost") {
			return "", errors.New("the file is another host's")
		}
		rest = after[len(host):]
	}
	name, err := url.PathUnescape(rest)
	switch {
	case err != nil:
		return "", err
	case name == "" || strings.ContainsRune(name, 0) || strings.ContainsAny(rest, "?#"):
		return "", errors.New("there is no path")
	case filepath.IsAbs(name) || v.asker.Folder == "":
		return name, nil
	}
	return filepath.Abs(filepath.Join(v.asker.Folder, filepath.FromSlash(name)))
}

// url resolves a reference to a definition at a URL.
func (d *Directory) url(ctx context.Context, ref string) (orchestrate.Member, error) {
	at, err := d.cfg.Policy.Check(ref)
	if err != nil {
		return orchestrate.Member{}, unknown(ref, "its definition may not be fetched", "", err)
	}
	at.Fragment = ""
	got := d.cached(ctx, at.String(), version{}, func(ctx context.Context) (*aaif.Definition, time.Duration, error) {
		client, err := d.cfg.Policy.Client(outbound.Options{Timeout: fetchTime, MaxResponse: aaif.DefaultMaxBytes})
		if err != nil {
			return nil, failureFresh, err
		}
		answer, err := outbound.Access{Policy: d.cfg.Policy}.Call(ctx, client, outbound.Request{
			Method: http.MethodGet, URL: at,
			Header: http.Header{"Accept": {"application/json, application/yaml, application/cbor, text/*;q=0.5, */*;q=0.1"}},
		})
		if err != nil {
			return nil, failureFresh, err
		}
		def, err := parse(at.Path, answer.Body)
		if err != nil {
			return nil, failureFresh, err
		}
		return def, urlFresh, nil
	})
	switch {
	case got.err != nil && passing(got.err):
		return orchestrate.Member{}, noAgent(ref, "its definition cannot be fetched now", "", got.err)
	case got.err != nil:
		return orchestrate.Member{}, unknown(ref, "its definition cannot be fetched", "", got.err)
	}
	return d.defined(ctx, ref, got.def)
}

// passing reports whether a failure to fetch is transient.
func passing(err error) bool {
	var f *outbound.Failure
	switch {
	case !errors.As(err, &f):
		return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	case errors.Is(err, outbound.ErrRefused): // also after a redirect
		return false
	}
	switch f.Reason {
	case outbound.ReasonTooLarge, outbound.ReasonCredential:
		return false
	case outbound.ReasonStatus:
		return f.Status >= 500 || f.Status == http.StatusRequestTimeout
	}
	return true
}

func parse(name string, data []byte) (*aaif.Definition, error) {
	doc, err := aaif.Parse(data, aaif.Options{Name: name, Kind: aaif.KindAgent})
	if err != nil {
		return nil, brief(err)
	}
	return doc.Definition(), nil
}

// brief keeps only the first problem of a document, which may be untrusted.
func brief(err error) error {
	var refused *aaif.Error
	if !errors.As(err, &refused) || len(refused.Problems) == 0 {
		return err
	}
	p := refused.Problems[0]
	return errors.New("it is no agent definition: " + p.Pointer + ": " + clip.Text(p.Message, 120))
}

// defined returns the member that a definition stands for: the agent that is registered with its
// agent_id, else the entity whose name is made from the definition's name. It fails if the
// definition has an agent_id and the registry cannot be read at the moment.
func (d *Directory) defined(ctx context.Context, ref string, def *aaif.Definition) (orchestrate.Member, error) {
	m := orchestrate.Member{AgentID: def.AgentID, Def: def}
	if def.AgentID != "" {
		missing := d.lookup(ctx, func(x *registry.Index) {
			if card, ok := x.Find(def.AgentID); ok && registry.KeyOf(card.AgentID, "") == registry.KeyOf(def.AgentID, "") {
				m.Entity = card.Entity
			}
		})
		if m.Entity == "" && missing != nil && !errors.Is(missing, registry.ErrAbsent) {
			return orchestrate.Member{}, noAgent(ref, "the registry cannot be read now, which says what entity its definition means", "", missing)
		}
	}
	if m.Entity != "" {
		return m, nil
	}
	var err error
	if m.Entity, err = aaif.EntityName(def.Agent.Name); err != nil {
		return orchestrate.Member{}, unknown(ref, "its definition makes no entity", "\"aeemesh agents import FILE --as ENTITY\" registers one for it", err)
	}
	return m, nil
}

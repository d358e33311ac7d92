package route

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// Facts are the known facts about a model. Unknown facts are zero or nil.
type Facts struct {
	// ContextTokens is the context window: conversation, tools and answer.
	ContextTokens int `json:"context_tokens,omitzero"`
	// MaxOutputTokens is the longest answer.
	MaxOutputTokens int `json:"max_output_tokens,omitzero"`

	// Input and Output are prices in USD for a thousand tokens; nil if unknown,
	// 0 if free. CachedInput is for input that the provider read from its
	// cache, CacheWrite for input that it wrote there; without them both cost
	// the same as Input.
	Input       *model.USD `json:"input_usd_per_1k,omitzero"`
	Output      *model.USD `json:"output_usd_per_1k,omitzero"`
	CachedInput *model.USD `json:"cached_input_usd_per_1k,omitzero"`
	CacheWrite  *model.USD `json:"cache_write_usd_per_1k,omitzero"`

	// Long is the price of long requests, if it is different.
	Long *Long `json:"long_input,omitzero"`

	// Regions are the regions or countries in which the provider stores and
	// processes data by default, by the names of compliance.data_residency,
	// such as "EU". Empty if the provider does not say, or lets the operator
	// choose.
	Regions []string `json:"regions,omitzero"`
	// Quality ranks models: higher is better, 0 is unranked.
	Quality float64 `json:"quality,omitzero"`
}

// Long is the price of requests with more input tokens than Above, the whole
// request included.
type Long struct {
	Above       int64      `json:"above_tokens"`
	Input       *model.USD `json:"input_usd_per_1k"`
	Output      *model.USD `json:"output_usd_per_1k"`
	CachedInput *model.USD `json:"cached_input_usd_per_1k,omitzero"`
	CacheWrite  *model.USD `json:"cache_write_usd_per_1k,omitzero"`
}

// Entry is a line of a catalogue.
type Entry struct {
	// Provider is AAIF's name of the provider, or an operator's own.
	Provider string `json:"provider"`
	// Model is the model's name. * stands for any characters. A name without one
	// also stands for its dated versions: gpt-4o for gpt-4o-2024-08-06 and
	// gpt-4o-latest.
	Model string `json:"model"`

	Facts `json:",embed"`
}

// Catalog holds facts about models. It is immutable.
type Catalog struct {
	// Date is the date of the facts, YYYY-MM-DD.
	Date string
	// Entries are in the order of the file, an operator's own first.
	Entries []Entry

	exact map[string]int
	globs []int
}

//go:embed catalog.json
var embedded []byte

// Builtin is the catalogue that comes with this package.
func Builtin() *Catalog { return readEmbedded() }

var readEmbedded = sync.OnceValue(func() *Catalog {
	c, err := ReadCatalog(embedded)
	if err != nil {
		panic("route: the embedded catalogue: " + err.Error())
	}
	return c
})

// MaxCatalog is the maximum size of a catalogue, in bytes.
const MaxCatalog = 4 << 20

// file is the form of a catalogue.
type file struct {
	Comment string  `json:"_comment"`
	Date    string  `json:"date"`
	Models  []Entry `json:"models"`
}

// ReadCatalog reads a catalogue in JSON. It is strict, and reports all problems
// together.
func ReadCatalog(data []byte) (*Catalog, error) {
	if len(data) > MaxCatalog {
		return nil, fmt.Errorf("model catalogue: it is larger than %d bytes", MaxCatalog)
	}
	var f file
	if err := json.Unmarshal(bytes.TrimSpace(data), &f, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("model catalogue: %w", err)
	}
	var bad []error
	if _, err := time.Parse(time.DateOnly, f.Date); err != nil {
		bad = append(bad, fmt.Errorf("date: %.20q is no date, YYYY-MM-DD", f.Date))
	}
	seen := make(map[string]bool, len(f.Models))
	for i := range f.Models {
		e := &f.Models[i]
		key := entryKey(e.Provider, e.Model)
		switch {
		case e.Provider == "" || e.Model == "":
			bad = append(bad, fmt.Errorf("models[%d]: provider and model must be there", i))
		case seen[key]:
			bad = append(bad, fmt.Errorf("models[%d]: %s/%s is there twice", i, e.Provider, e.Model))
		}
		seen[key] = true
		if e.ContextTokens < 0 || e.MaxOutputTokens < 0 || e.Quality < 0 {
			bad = append(bad, fmt.Errorf("models[%d]: numbers must not be negative", i))
		}
		if !e.sane() {
			bad = append(bad, fmt.Errorf("models[%d]: prices must not be negative, and one of input goes with one of output", i))
		}
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("model catalogue: %w", errors.Join(bad...))
	}
	return newCatalog(f.Date, f.Models), nil
}

// sane reports whether the prices are valid.
func (f Facts) sane() bool {
	prices := []*model.USD{f.Input, f.Output, f.CachedInput, f.CacheWrite}
	if l := f.Long; l != nil {
		if l.Above <= 0 || l.Input == nil || l.Output == nil || f.Input == nil {
			return false
		}
		prices = append(prices, l.Input, l.Output, l.CachedInput, l.CacheWrite)
	}
	for _, p := range prices {
		if p != nil && *p < 0 {
			return false
		}
	}
	return (f.Input == nil) == (f.Output == nil)
}

func newCatalog(date string, entries []Entry) *Catalog {
	c := &Catalog{Date: date, Entries: entries, exact: make(map[string]int, len(entries))}
	for i, e := range entries {
		key := entryKey(e.Provider, e.Model)
		if _, taken := c.exact[key]; taken {
			continue
		}
		if c.exact[key] = i; strings.Contains(e.Model, "*") {
			c.globs = append(c.globs, i)
		}
	}
	return c
}

func entryKey(provider, name string) string { return provider + "\x00" + name }

// With returns a catalogue in which own comes before c. If both have an entry,
// own's facts apply, and c's for facts that own lacks.
func (c *Catalog) With(own *Catalog) *Catalog {
	var entries []Entry
	taken := make(map[string]bool)
	for _, e := range own.Entries {
		if i, ok := c.exact[entryKey(e.Provider, e.Model)]; ok {
			e.Facts = e.Facts.or(c.Entries[i].Facts)
		} else if base := c.Lookup(e.Provider, e.Model); !strings.Contains(e.Model, "*") {
			e.Facts = e.Facts.or(base)
		}
		taken[entryKey(e.Provider, e.Model)] = true
		entries = append(entries, e)
	}
	for _, e := range c.Entries {
		if !taken[entryKey(e.Provider, e.Model)] {
			entries = append(entries, e)
		}
	}
	return newCatalog(max(c.Date, own.Date), entries)
}

// or fills in facts that f lacks from g.
func (f Facts) or(g Facts) Facts {
	f.ContextTokens = cmp.Or(f.ContextTokens, g.ContextTokens)
	f.MaxOutputTokens = cmp.Or(f.MaxOutputTokens, g.MaxOutputTokens)
	if f.Input == nil && f.Output == nil { // do not mix prices of two sources; f may have prices of the cache only
		f.Input, f.Output, f.Long = g.Input, g.Output, g.Long
		f.CachedInput, f.CacheWrite = cmp.Or(f.CachedInput, g.CachedInput), cmp.Or(f.CacheWrite, g.CacheWrite)
	}
	if f.Regions == nil {
		f.Regions = g.Regions
	}
	f.Quality = cmp.Or(f.Quality, g.Quality)
	return f
}

// dated matches the name of a dated version, and captures the model's name
// without the date.
var dated = pattern.Of(`^(.+)[-@](latest|\d{4}-\d{2}-\d{2}|\d{8}|\d{6}|\d{4}|\d{3})$`)

// Lookup returns the facts about a model: by its exact name, else by its name
// without a date, else by the matching pattern with the most characters; zero
// if it is not in the catalogue.
func (c *Catalog) Lookup(provider, name string) Facts {
	if i, ok := c.find(provider, name); ok {
		return c.Entries[i].Facts
	}
	return Facts{}
}

// Find is Lookup, but returns the whole entry.
func (c *Catalog) Find(provider, name string) (Entry, bool) {
	if i, ok := c.find(provider, name); ok {
		return c.Entries[i], true
	}
	return Entry{}, false
}

func (c *Catalog) find(provider, name string) (int, bool) {
	if i, ok := c.exact[entryKey(provider, name)]; ok {
		return i, true
	}
	if m := dated.RE().FindStringSubmatch(name); m != nil {
		if i, ok := c.exact[entryKey(provider, m[1])]; ok {
			return i, true
		}
	}
	best, length := -1, -1
	for _, i := range c.globs {
		e := &c.Entries[i]
		if n := len(e.Model); e.Provider == provider && n > length && glob(e.Model, name) {
			best, length = i, n
		}
	}
	return best, best >= 0
}

// glob reports whether a name matches a pattern in which * stands for any
// characters.
func glob(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return strings.HasSuffix(name, parts[len(parts)-1])
}

// Matches reports whether a route matches a pattern, PROVIDER/MODEL or MODEL
// alone, as in a catalogue. Operators' rankings consist of such patterns.
func Matches(pattern, provider, name string) bool {
	names := []string{name}
	if m := dated.RE().FindStringSubmatch(name); m != nil {
		names = append(names, m[1])
	}
	return slices.ContainsFunc(names, func(n string) bool { return glob(pattern, provider+"/"+n) || glob(pattern, n) })
}

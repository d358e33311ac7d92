package learn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/aeemesh/aeemesh/agents/embedding"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
)

// Pools stores pools by compare-and-swap: [jetstream.Pools].
type Pools interface {
	// Get returns a pool and its revision; revision 0 if there is none.
	Get(ctx context.Context, entity, id string) (pool []byte, revision uint64, err error)
	// Swap replaces a pool at one revision, or fails with [jetstream.ErrChanged].
	Swap(ctx context.Context, entity, id string, pool []byte, revision uint64) (next uint64, err error)
	// OptOuts returns the stored [OptOuts] of an agent; nil if there are none.
	OptOuts(ctx context.Context, entity string) (clients []byte, revision uint64, err error)
}

// Config configures a [Learner]. Entity, Templates, Pools and Embedder are required.
type Config struct {
	// Entity is the agent's entity id.
	Entity string
	// Templates are the agent's current templates. Their keys are not learned again.
	Templates []*template.Template
	// Pools stores what was learned. [Learner.Use] can set it later.
	Pools    Pools
	Embedder embedding.Embedder
	// Rules are the thresholds and limits of SDSI 6.2.
	Rules evolve.Config
	// Induce makes a key from a cluster. Default: [evolve.Rules].
	Induce func(ctx context.Context, c evolve.Cluster, t *template.Template) (template.Key, error)
	// Judge reports whether a value means what the client's words say. sure is false if it cannot
	// decide. It gets the words and the value without what Scrub removes. Default: the embedder
	// compares the client's words with the words that the key was made from, and no value leaves the
	// process.
	Judge func(ctx context.Context, j Judgement) (aligned, sure bool, err error)
	// Sensitive says which keys wait for an operator. Default: the built-in words.
	Sensitive evolve.Sensitive
	// Classify returns why a key waits for an operator, or "" if it does not. It is called
	// for keys that Sensitive lets pass. Default nil: Sensitive alone decides.
	Classify func(ctx context.Context, k template.Key) (why string, err error)
	// Scrub removes personal data from a text before it is embedded, stored or judged; keep is false
	// if nothing of the text may be stored, or Judge may not get a value with it. Default: [Scrub].
	Scrub func(text string) (clean string, keep bool)
	// Exclude reports whether the learner must learn nothing from a sender. Default: it learns from
	// all senders.
	Exclude func(entity string) bool
	// Cohort returns the cohort of a sender. Each cohort has a pool of its own. Default: all
	// senders share one pool.
	Cohort func(entity string) string
	// Cohorts are the possible values of Cohort, except "".
	Cohorts []string
	// Unsigned counts senders that do not sign separately, by the names that they claim. If it is
	// false, all of them together count as one client. Default false.
	Unsigned bool
	// Tell publishes an event about a scenario. Default: it is logged only.
	Tell func(scenario, cohort string, e evolve.Event) error

	// Patience is how long the result of an exchange waits for the store. Default 2 seconds.
	Patience time.Duration
	// Interval is how often a worker updates its pools. Default 15 seconds.
	Interval time.Duration
	// Logger gets log messages. Default: none.
	Logger *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// A Judgement is the question whether a value means what the client's words say.
type Judgement struct {
	Key      template.Key
	Value    json.RawMessage // if personal data was removed from it, perhaps of another type
	Fragment string          // the client's words
}

// WithDefaults returns the configuration with the defaults filled in, or all errors in its rules.
func (c Config) WithDefaults() (Config, error) {
	rules, err := c.Rules.WithDefaults()
	if err != nil {
		return c, err
	}
	if c.Embedder == nil {
		return c, errors.New("learn: the embedder is missing")
	}
	c.Rules = rules
	c.Patience, c.Interval = cmp.Or(c.Patience, 2*time.Second), cmp.Or(c.Interval, 15*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Scrub == nil {
		c.Scrub = Scrub
	}
	if c.Exclude == nil {
		c.Exclude = func(string) bool { return false }
	}
	if c.Cohort == nil {
		c.Cohort = func(string) string { return "" }
	}
	if c.Tell == nil {
		c.Tell = func(string, string, evolve.Event) error { return nil }
	}
	if c.Induce == nil {
		c.Induce = func(_ context.Context, cluster evolve.Cluster, _ *template.Template) (template.Key, error) {
			return evolve.Rules(cluster)
		}
	}
	if c.Judge == nil {
		c.Judge = compareWith(c.Embedder)
	}
	return c, nil
}

// Candidate makes a key from a cluster, and returns why the key must wait for an operator; "" if it
// need not. If the key only refines the description of a key of the template, that key is checked,
// too: a change of a security-relevant key needs an authorization (SDSI 7). The configuration must
// have its defaults.
func (c *Config) Candidate(ctx context.Context, cluster evolve.Cluster, t *template.Template) (k template.Key, why string, err error) {
	if k, err = c.Induce(ctx, cluster, t); err != nil {
		return k, "", err
	}
	if why = c.sensitive(ctx, k, cluster); why != "" {
		return k, why, nil
	}
	if there := evolve.Like(t, k.Name); there != nil {
		why = c.sensitive(ctx, *there, cluster)
	}
	return k, why, nil
}

// sensitive returns why a key is security-relevant; "" if it is not.
func (c *Config) sensitive(ctx context.Context, k template.Key, cluster evolve.Cluster) string {
	if why := c.Sensitive.Why(k, cluster); why != "" {
		return why
	}
	if c.Classify == nil {
		return c.Sensitive.Unread(k, cluster)
	}
	why, err := c.Classify(ctx, k)
	if err != nil {
		why = "it could not be classified" // an operator decides
	}
	return why
}

// New returns a learner, or the errors in its configuration.
func New(cfg Config) (*Learner, error) {
	local := cfg.Judge == nil
	cfg, err := cfg.WithDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Entity == "" || len(cfg.Templates) == 0 {
		return nil, errors.New("learn: a learner has an entity and templates")
	}
	l := &Learner{cfg: cfg, local: local, pools: map[poolID]*pool{}, judging: make(chan judging, 64), texts: make(chan struct{}, maxEmbedding), kick: make(chan struct{}, 1), unread: rate.Sometimes{Interval: time.Minute}}
	for _, t := range cfg.Templates {
		for _, cohort := range append([]string{""}, cfg.Cohorts...) {
			id := poolID{t.Scenario, cohort}
			if p := l.pools[id]; p != nil {
				p.template = t // the last template of a scenario is the current one
				continue
			}
			l.pools[id] = &pool{learner: l, id: id, template: t}
		}
	}
	if cfg.Pools != nil {
		l.Use(cfg.Pools)
	}
	return l, nil
}

var _ sdsi.Learner = (*Learner)(nil)

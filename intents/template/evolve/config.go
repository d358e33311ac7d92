package evolve

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Config has the thresholds and limits of section 6.2 of the draft. A field of 0 means its default.
type Config struct {
	// Similarity is the least cosine similarity of two fragments that mean the same. Default 0.85.
	Similarity float64 `json:"similarity,omitempty"`
	// HalfLife is the time in which a cluster loses half of its heat. Default 24h.
	HalfLife Duration `json:"half_life,omitempty"`
	// HeatPerVote is the heat that one vote adds. Default 10.
	HeatPerVote float64 `json:"heat_per_vote,omitempty"`
	// MinHeat is the first gate: no key is made from a cluster whose heat is not above it. Default
	// 50.
	MinHeat float64 `json:"min_heat,omitempty"`
	// MinClients or MinVotes within Recent are the second gate. Defaults 5, 10, 7 days.
	MinClients int      `json:"min_clients,omitempty"`
	MinVotes   int      `json:"min_votes,omitempty"`
	Recent     Duration `json:"recent,omitempty"`
	// VoteEvery is the least time between two votes of a client for a shared cluster. Default 24h.
	VoteEvery Duration `json:"vote_every,omitempty"`
	// Anonymity is how many clients must have used a word before other clients see it. So this many
	// clients with MinVotes votes are enough for a key. It is at least 2. Default 3.
	Anonymity int `json:"anonymity,omitempty"`

	// MaxTrials is how many keys may be on trial at the same time; further keys wait. Default 10.
	MaxTrials int `json:"max_trials,omitempty"`
	// MaxKeys is how many keys a pool may add to a template, including those on trial. Default 50.
	MaxKeys int `json:"max_keys,omitempty"`
	// Trial is how long a key is on trial. Default 7 days.
	Trial Duration `json:"trial,omitempty"`
	// Window is how long metrics are kept, and how long a trial may take without a decision. It is
	// at least Trial. Default 30 days.
	Window Duration `json:"window,omitempty"`
	// Grace is how long a deprecated key stays in the template. Default 14 days.
	Grace Duration `json:"grace,omitempty"`
	// Compat is how long a withdrawn key is still accepted. Default 30 days.
	Compat Duration `json:"compat,omitempty"`
	// Retire is how long a key that was withdrawn, or that an operator has rejected, is not
	// proposed again. Default 90 days.
	Retire Duration `json:"retire,omitempty"`

	// A key on trial is promoted if its metrics reach PromoteUsage, PromoteAccuracy and
	// PromoteTypes. It is deprecated if one is below DeprecateUsage, DeprecateAccuracy or
	// DeprecateTypes. Defaults 0.15, 0.8, 0.9 and 0.05, 0.6, 0.7.
	PromoteUsage      float64 `json:"promote_usage,omitempty"`
	PromoteAccuracy   float64 `json:"promote_accuracy,omitempty"`
	PromoteTypes      float64 `json:"promote_types,omitempty"`
	DeprecateUsage    float64 `json:"deprecate_usage,omitempty"`
	DeprecateAccuracy float64 `json:"deprecate_accuracy,omitempty"`
	DeprecateTypes    float64 `json:"deprecate_types,omitempty"`
	// MinPayloads and MinJudged are how many payloads and judged values a decision needs. Defaults
	// 20 and 5.
	MinPayloads int `json:"min_payloads,omitempty"`
	MinJudged   int `json:"min_judged,omitempty"`

	// Personal lets a client that repeats a wish have a key of its own. Default false.
	Personal bool `json:"personal,omitempty"`
	// MaxPersonal is how many such keys a client may have. Default 5.
	MaxPersonal int `json:"max_personal,omitempty"`

	// Approve says which new keys wait for an operator. Default [ApproveSensitive].
	Approve Approve `json:"approve,omitempty"`

	// MaxBytes bounds the encoded pool. Default 512 KiB.
	MaxBytes int `json:"max_bytes,omitempty"`
	// MaxClusters bounds the clusters. Default 256.
	MaxClusters int `json:"max_clusters,omitempty"`
}

// Approve says which keys wait for an operator.
type Approve string

// The policies.
const (
	ApproveSensitive Approve = "sensitive" // keys that are security-relevant, or that expose a capability
	ApproveAll       Approve = "all"
)

const day = 24 * time.Hour

// A Duration is a time.Duration whose JSON form is a text such as "24h".
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// UnmarshalJSON implements [json.Unmarshaler]. For a number its error says what to write instead.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("%s is no duration: write a number with its unit, as in 30s or 168h", raw)
	}
	return d.UnmarshalText([]byte(text))
}

func (d Duration) seconds() int64 { return int64(time.Duration(d) / time.Second) }

// WithDefaults returns the configuration with the defaults filled in, or all errors in it.
func (c Config) WithDefaults() (Config, error) {
	var bad []error
	atLeast := func(name string, v, least, most float64) {
		if !(v >= least && v <= most) {
			bad = append(bad, fmt.Errorf("%s: %g is not between %g and %g", name, v, least, most))
		}
	}
	number := func(name string, v *float64, def, least, most float64) {
		if *v == 0 {
			*v = def
		}
		atLeast(name, *v, least, most)
	}
	whole := func(name string, v *int, def, least, most int) {
		if *v == 0 {
			*v = def
		}
		atLeast(name, float64(*v), float64(least), float64(most))
	}
	duration := func(name string, v *Duration, def, least, most time.Duration) {
		if *v == 0 {
			*v = Duration(def)
		}
		if d := time.Duration(*v); d < least || d > most {
			bad = append(bad, fmt.Errorf("%s: %v is not between %v and %v", name, d, least, most))
		}
	}
	const year = 366 * day
	number("similarity", &c.Similarity, 0.85, 0.1, 1)
	duration("half_life", &c.HalfLife, day, time.Second, year)
	number("heat_per_vote", &c.HeatPerVote, 10, 0.001, 1e6)
	number("min_heat", &c.MinHeat, 50, 0.001, 1e9)
	whole("min_clients", &c.MinClients, 5, 2, maxVotes)
	whole("min_votes", &c.MinVotes, 10, 2, maxVotes)
	duration("recent", &c.Recent, 7*day, time.Second, year)
	duration("vote_every", &c.VoteEvery, day, time.Second, year)
	whole("anonymity", &c.Anonymity, 3, 2, maxSayings)
	whole("max_trials", &c.MaxTrials, 10, 1, 50)
	whole("max_keys", &c.MaxKeys, 50, 1, 100)
	duration("trial", &c.Trial, 7*day, time.Second, year)
	duration("window", &c.Window, 30*day, time.Second, year)
	if c.Window < c.Trial {
		bad = append(bad, fmt.Errorf("window: %v is less than trial, %v", time.Duration(c.Window), time.Duration(c.Trial)))
	}
	duration("grace", &c.Grace, 14*day, time.Second, year)
	duration("compat", &c.Compat, 30*day, time.Second, year)
	duration("retire", &c.Retire, 90*day, time.Second, year)
	number("promote_usage", &c.PromoteUsage, 0.15, 0, 1)
	number("promote_accuracy", &c.PromoteAccuracy, 0.8, 0, 1)
	number("promote_types", &c.PromoteTypes, 0.9, 0, 1)
	number("deprecate_usage", &c.DeprecateUsage, 0.05, 0, 1)
	number("deprecate_accuracy", &c.DeprecateAccuracy, 0.6, 0, 1)
	number("deprecate_types", &c.DeprecateTypes, 0.7, 0, 1)
	whole("min_payloads", &c.MinPayloads, 20, 1, 1e9)
	whole("min_judged", &c.MinJudged, 5, 1, 1e9)
	whole("max_personal", &c.MaxPersonal, 5, 1, 10)
	whole("max_bytes", &c.MaxBytes, 512<<10, 16<<10, 900<<10)
	whole("max_clusters", &c.MaxClusters, 256, 4, 1024)
	c.Approve = cmp.Or(c.Approve, ApproveSensitive)
	if c.Approve != ApproveSensitive && c.Approve != ApproveAll {
		bad = append(bad, fmt.Errorf("approve: %q is neither %q nor %q", c.Approve, ApproveSensitive, ApproveAll))
	}
	for _, pair := range []struct {
		name      string
		low, high float64
	}{{"usage", c.DeprecateUsage, c.PromoteUsage}, {"accuracy", c.DeprecateAccuracy, c.PromoteAccuracy}, {"types", c.DeprecateTypes, c.PromoteTypes}} {
		if pair.low > pair.high {
			bad = append(bad, fmt.Errorf("deprecate_%s is above promote_%s", pair.name, pair.name))
		}
	}
	return c, errors.Join(bad...)
}

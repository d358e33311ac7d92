package learn

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/intents/template/evolve"
)

// Settings are an operator's settings of learning, in a file.
type Settings struct {
	// Rules are the thresholds and limits of SDSI 6.2.
	Rules evolve.Config `json:"rules,omitzero"`
	// Model, PROVIDER/NAME, makes keys, judges values and classifies keys. Default: none; rules and
	// the embedder do it.
	Model string `json:"model,omitempty"`
	// Embedder, PROVIDER/NAME, compares the texts of clients. Default "offline/ngrams", which needs
	// no model and is degraded: it compares spelling, not meaning.
	Embedder string `json:"embedder,omitempty"`
	// Sensitive are further words of keys that wait for an operator; a word that ends in "*" stands
	// for all words with this beginning.
	Sensitive []string `json:"sensitive,omitempty"`
	// SensitivePattern is a regular expression; keys that match it wait for an operator, too.
	SensitivePattern string `json:"sensitive_pattern,omitempty"`
	// Cohorts are groups of senders with pools of their own: for each name, patterns of entities
	// such as "agent.partner-*".
	Cohorts map[string][]string `json:"cohorts,omitempty"`
	// Exclude are patterns of senders from whom the agent learns nothing.
	Exclude []string `json:"exclude,omitempty"`
	// Interval is how often a worker updates its pools. Default "15s", at least "100ms".
	Interval evolve.Duration `json:"interval,omitempty"`
	// Unsigned counts senders that do not sign separately, by the names that they claim. If it is
	// false, all of them together count as one client. Default false.
	Unsigned bool `json:"unsigned,omitempty"`
}

// Apply copies the settings into a configuration, and returns all errors in them. The caller sets
// Model and Embedder.
func (s Settings) Apply(c *Config) error {
	var bad []error
	c.Rules, c.Sensitive.Words, c.Unsigned, c.Interval = s.Rules, s.Sensitive, s.Unsigned, time.Duration(s.Interval)
	if s.Interval != 0 && time.Duration(s.Interval) < minInterval {
		bad = append(bad, fmt.Errorf("learning.interval: %v is less than %v", time.Duration(s.Interval), minInterval))
	}
	if s.SensitivePattern != "" {
		pattern, err := regexp.Compile(s.SensitivePattern)
		if err != nil {
			bad = append(bad, fmt.Errorf("learning.sensitive_pattern: %w", err))
		}
		c.Sensitive.Pattern = pattern
	}
	for name, patterns := range s.Cohorts {
		if name == "" {
			bad = append(bad, errors.New("learning.cohorts: a cohort has no name"))
		} else if err := check("learning.cohorts."+name, patterns); err != nil {
			bad = append(bad, err)
		}
		c.Cohorts = append(c.Cohorts, name)
	}
	slices.Sort(c.Cohorts)
	of := map[string]string{}
	for _, name := range c.Cohorts {
		for _, p := range s.Cohorts[name] {
			if other, twice := of[p]; twice {
				bad = append(bad, fmt.Errorf("learning.cohorts: %q is a pattern of %s and of %s", p, other, name))
			}
			of[p] = name
		}
	}
	if err := check("learning.exclude", s.Exclude); err != nil {
		bad = append(bad, err)
	}
	c.Exclude = func(entity string) bool { return matches(s.Exclude, entity) }
	c.Cohort = func(entity string) string {
		for _, name := range c.Cohorts {
			if matches(s.Cohorts[name], entity) {
				return name
			}
		}
		return ""
	}
	if _, err := s.Rules.WithDefaults(); err != nil {
		bad = append(bad, fmt.Errorf("learning.rules: %w", err))
	}
	return errors.Join(bad...)
}

// minInterval is the shortest [Settings].Interval.
const minInterval = 100 * time.Millisecond

func check(where string, patterns []string) error {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" || strings.ContainsAny(p, "> \t") {
			return fmt.Errorf("%s: %q is no pattern of entities; \"*\" stands for any characters, as in agent.partner-*", where, p)
		}
	}
	return nil
}

func matches(patterns []string, entity string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, entity); return ok })
}

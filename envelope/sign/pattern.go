package sign

import (
	"errors"
	"fmt"
	"strings"
)

// maxPatterns is the most from patterns of one key.
const maxPatterns = 256

// MatchFrom reports whether the entity id from matches pattern. Patterns are like those
// of NATS subjects: tokens between dots, '*' for any one token, '>' as the last token for
// one or more. "agent.*" matches agent.reviewer but not agent.team.reviewer, which
// "agent.>" matches; ">" matches every id.
func MatchFrom(pattern, from string) bool {
	if from == "" {
		return false
	}
	for {
		p, pRest, pMore := strings.Cut(pattern, ".")
		if p == ">" && !pMore {
			return true
		}
		f, fRest, fMore := strings.Cut(from, ".")
		if p != f && (p != "*" || f == "") {
			return false
		}
		if !pMore || !fMore {
			return pMore == fMore
		}
		pattern, from = pRest, fRest
	}
}

// CheckPattern returns what is wrong with a from pattern: an empty token, a wildcard that
// is only part of a token, '>' before the end.
func CheckPattern(pattern string) error {
	if pattern == "" {
		return errors.New("a from pattern must not be empty")
	}
	tokens := strings.Split(pattern, ".")
	for i, t := range tokens {
		switch {
		case t == "":
			return fmt.Errorf("from pattern %q has an empty token", pattern)
		case t == ">" && i < len(tokens)-1:
			return fmt.Errorf("from pattern %q: '>' must be the last token", pattern)
		case t != "*" && t != ">" && strings.ContainsAny(t, "*>"):
			return fmt.Errorf("from pattern %q: a wildcard must be a whole token", pattern)
		case strings.ContainsAny(t, " \t\r\n"):
			return fmt.Errorf("from pattern %q has white space", pattern)
		}
	}
	return nil
}

func checkPatterns(patterns []string) (bad []error) {
	if len(patterns) == 0 {
		return []error{errors.New(`a key needs a from pattern; ">" allows every entity`)}
	}
	if len(patterns) > maxPatterns {
		return []error{fmt.Errorf("%d from patterns, the limit is %d", len(patterns), maxPatterns)}
	}
	for _, p := range patterns {
		if err := CheckPattern(p); err != nil {
			bad = append(bad, err)
		}
	}
	return bad
}

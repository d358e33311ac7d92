package orchestrate

import (
	"encoding/json"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
)

// DefaultMerge is the result of a swarm in which nobody merges:
//
//	{"results": [{"alias", "entity", "output"}, …], "failures": [{"alias", "entity", "error"}, …]}
//
// both in document order and both always there. Where every output is a text,
// {"text": …} and nothing beside, there is also "text", so that whoever comes
// next has something to read: the one text as it is, or all of them, each under
// a line with its alias.
func DefaultMerge(outcomes []Outcome) json.RawMessage {
	m := merging{Results: resultsOf(outcomes), Failures: failuresOf(outcomes)}
	m.Text = joined(m.Results)
	return mustJSON(m)
}

// joined are the texts of results that are nothing but texts; "" where one is
// more.
func joined(results []MemberResult) string {
	texts := make([]string, len(results))
	for i, r := range results {
		members := objectOf(r.Output)
		if len(members) != 1 || jsonv2.Unmarshal(members["text"], &texts[i]) != nil {
			return ""
		}
	}
	if len(texts) == 1 {
		return texts[0]
	}
	var b strings.Builder
	for i, text := range texts {
		if i > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(results[i].Alias + ":\n" + strings.TrimRight(text, "\n"))
	}
	return b.String()
}

package orchestrate

import (
	"cmp"
	"encoding/json"
	"slices"
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
// a line with its alias. A swarm leaves out of it what does not fit one message.
func DefaultMerge(outcomes []Outcome) json.RawMessage {
	m := merging{Results: resultsOf(outcomes), Failures: failuresOf(outcomes)}
	m.Text = joined(m.Results)
	return mustJSON(m)
}

// mergeWithin is [DefaultMerge] in about so many bytes. Beyond them it has no
// "text" first, and then lacks the largest outputs; it returns whose, in document
// order.
func mergeWithin(outcomes []Outcome, most int) (json.RawMessage, []string) {
	whole := DefaultMerge(outcomes)
	if len(whole) <= most {
		return whole, nil
	}
	m := merging{Results: resultsOf(outcomes), Failures: failuresOf(outcomes)}
	size := len(mustJSON(m))
	bySize := make([]int, len(m.Results))
	for i := range bySize {
		bySize[i] = i
	}
	slices.SortFunc(bySize, func(i, j int) int {
		return cmp.Or(cmp.Compare(len(m.Results[j].Output), len(m.Results[i].Output)), cmp.Compare(j, i))
	})
	var without []string
	for _, i := range bySize {
		if size <= most {
			break
		}
		size -= len(m.Results[i].Output)
		m.Results[i].Output = nil
	}
	for _, r := range m.Results {
		if r.Output == nil {
			without = append(without, r.Alias)
		}
	}
	return mustJSON(m), without
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

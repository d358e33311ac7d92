package orchestrate

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
)

// DefaultMerge is the result of a swarm without a synthesizer:
//
//	{"results": [{"alias", "entity", "output"}, …], "failures": [{"alias", "entity", "error"}, …]}
//
// Both are in document order and always present. If every output is {"text": …} and nothing else,
// there is also "text" for the next reader: the only text unchanged, or all texts, each after a
// line with its alias. A swarm leaves out outputs that do not fit into one message.
func DefaultMerge(outcomes []Outcome) json.RawMessage {
	m := merging{Results: resultsOf(outcomes), Failures: failuresOf(outcomes)}
	m.Text = joined(m.Results)
	return mustJSON(m)
}

// mergeWithin is [DefaultMerge] within about most bytes. If the result is
// larger, it leaves out "text" first, and then the largest outputs; it returns
// the aliases of those, in document order.
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

// joined joins the texts of results that consist of a text only; it returns "" if a result has
// other members.
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

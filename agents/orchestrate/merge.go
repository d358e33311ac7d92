package orchestrate

import (
	"encoding/json"
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

// mergeWithin is [DefaultMerge] within about most bytes, and the other bounds of an envelope. It
// leaves out outputs that nest too deep. If the result is too large, it leaves out "text" first, then
// the largest outputs, and at last messages of failures. It returns the aliases of the outputs that it
// leaves out, in document order, and whether it left out outputs or messages.
func mergeWithin(outcomes []Outcome, most int) (made json.RawMessage, without []string, cut bool) {
	m := merging{Results: resultsOf(outcomes), Failures: failuresOf(outcomes)}
	for i := range m.Results {
		if depth, _ := extent(m.Results[i].Output); depth > maxDepth-mergeDepth {
			m.Results[i].Output = nil
		}
	}
	m.Text = joined(m.Results)
	made = mustJSON(m)
	if len(made) > most {
		m.Text = ""
		made = m.leaveOut(mustJSON(m), most, func(raw json.RawMessage) int { return len(raw) })
	}
	made = m.leaveOut(made, maxValues, func(raw json.RawMessage) int { _, n := extent(raw); return n })
	for _, r := range m.Results {
		if r.Output == nil {
			without = append(without, r.Alias)
		}
	}
	if room := most - len(made); room < 0 {
		for _, f := range m.Failures {
			room += len(f.Error.Message)
		}
		rec := Record{Failures: m.Failures}
		rec.trimWords(room)
		made, cut = mustJSON(m), true
	}
	return made, without, cut || without != nil
}

// leaveOut leaves out the outputs with the largest size until that of the whole, whose JSON is made, is
// at most most. It returns the JSON of the rest.
func (m *merging) leaveOut(made json.RawMessage, most int, size func(json.RawMessage) int) json.RawMessage {
	over := size(made) - most
	if over <= 0 {
		return made
	}
	sizes := make([]int, len(m.Results))
	for i, r := range m.Results {
		sizes[i] = size(r.Output)
	}
	for over > 0 {
		i := 0
		for j := range sizes {
			if sizes[j] >= sizes[i] {
				i = j
			}
		}
		if len(sizes) == 0 || sizes[i] == 0 {
			break
		}
		over -= sizes[i]
		sizes[i], m.Results[i].Output = 0, nil
	}
	return mustJSON(m)
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

package evolve

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/template"
)

// Limits of the examples in a description, and of a name.
const (
	maxExamples    = 3
	maxExampleText = 60
	maxNameWords   = 3
)

// ErrNoKey is wrapped by the error for a cluster from which no key can be made.
var ErrNoKey = errors.New("no key can be made of this cluster")

// examples returns texts of a cluster, reduced to the words that several clients have used. numbers
// reports whether the texts differ in a number, which is "#" in the result.
func (c *cluster) examples(cfg Config) (texts []string, numbers bool) {
	enough := cfg.Anonymity
	if c.Owner != "" {
		enough = 1 // only the owner sees them
	}
	said := map[string]map[string]bool{} // word to clients
	values, counted := map[string]bool{}, 0
	for _, s := range c.Sayings {
		words := template.Words(s.Text)
		if n := numbersIn(words); len(n) == 1 {
			values[n[0]] = true
			counted++
		}
		for _, w := range words {
			if said[w.Text] == nil {
				said[w.Text] = map[string]bool{}
			}
			said[w.Text][s.Client] = true
		}
	}
	numbers = len(values) >= 2 && counted*10 >= len(c.Sayings)*6
	count := map[string]int{}
	for _, s := range c.Sayings {
		var kept []template.Word
		gap := false
		for _, w := range template.Words(s.Text) {
			switch {
			case numbers && isNumber(w.Text):
				w.Text = "#"
			case len(said[w.Text]) < enough || isNumber(w.Text) && len(w.Text) > 2 && c.Owner == "":
				gap = true
				continue
			}
			w.Attached = w.Attached && !gap
			gap = false
			kept = append(kept, w)
		}
		if text := joined(kept); text != "" && len(text) <= maxExampleText {
			if count[text] == 0 {
				texts = append(texts, text)
			}
			count[text]++
		}
	}
	slices.SortStableFunc(texts, func(a, b string) int { return count[b] - count[a] })
	if len(texts) > maxExamples {
		texts = texts[:maxExamples]
	}
	return texts, numbers
}

// joined joins words to a text, without function words at both ends; "" if no word has a meaning.
func joined(words []template.Word) string {
	for len(words) > 0 && words[0].Function {
		words = words[1:]
	}
	for len(words) > 0 && words[len(words)-1].Function {
		words = words[:len(words)-1]
	}
	var b strings.Builder
	letters := false
	for i, w := range words {
		if i > 0 && !w.Attached {
			b.WriteByte(' ')
		}
		b.WriteString(w.Text)
		letters = letters || !w.Function && strings.IndexFunc(w.Text, unicode.IsLetter) >= 0
	}
	if !letters {
		return ""
	}
	return b.String()
}

func isNumber(word string) bool {
	for _, c := range word {
		if c < '0' || c > '9' {
			return false
		}
	}
	return word != ""
}

func numbersIn(words []template.Word) (out []string) {
	for _, w := range words {
		if isNumber(w.Text) && len(w.Text) <= 4 {
			out = append(out, w.Text)
		}
	}
	return out
}

// Rules makes a key from a cluster without a model (SDSI 6.2.2, a rule-based extractor): an integer
// if the texts differ in a number, otherwise a boolean. The name consists of the words that are not
// function words.
func Rules(c Cluster) (template.Key, error) {
	if len(c.Examples) == 0 {
		return template.Key{}, fmt.Errorf("%w: its clients share no words", ErrNoKey)
	}
	k := template.Key{Type: template.Boolean}
	if c.Numbers {
		k.Type = template.Integer
	}
	k.Name = nameOf(c.Examples[0])
	if k.Name == "" {
		return k, fmt.Errorf("%w: no name can be made of %q", ErrNoKey, c.Examples[0])
	}
	title := strings.TrimSpace(strings.ReplaceAll(c.Examples[0], "#", "a number of"))
	if k.Type == template.Boolean {
		k.Description = fmt.Sprintf("Whether this is wished for: %s.", title)
	} else {
		k.Description = fmt.Sprintf("How many are wished for: %s.", title)
	}
	k.Description += mappings(c)
	return k, nil
}

// mappings returns mapping examples for a description, from the texts of clients (SDSI 6.2.2).
func mappings(c Cluster) string {
	var b strings.Builder
	for i, text := range c.Examples {
		value := "true"
		if c.Numbers {
			value = strconv.Itoa(i + 2)
			text = strings.ReplaceAll(text, "#", value)
		}
		fmt.Fprintf(&b, " Example mapping: '%s' -> %s.", strings.ReplaceAll(text, "'", "’"), value)
	}
	return b.String()
}

// nameOf makes a key_name from a text; "" if the text has no suitable words.
func nameOf(text string) string {
	var parts []string
	letters := false
	for _, w := range template.Words(text) {
		if w.Function || isNumber(w.Text) {
			continue
		}
		letters = letters || strings.IndexFunc(w.Text, unicode.IsLetter) >= 0
		if p := ascii(w.Text); p != "" {
			parts = append(parts, p)
		}
		if len(parts) == maxNameWords {
			break
		}
	}
	name := strings.Join(parts, "_")
	if name == "" {
		if !letters {
			return ""
		}
		return "wish_" + strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(short(text)))[:6]
	}
	if name[0] < 'a' || name[0] > 'z' {
		name = "wish_" + name
	}
	if len(name) > 60 {
		name = strings.TrimRight(name[:60], "_")
	}
	return name
}

var latin = strings.NewReplacer("ß", "ss", "ø", "o", "æ", "ae", "œ", "oe", "ł", "l", "đ", "d", "ð", "d", "þ", "th", "ı", "i")

// plain replaces letters with accents, wide letters and letters in circles by plain ones.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.M, r) {
			return -1
		}
		return r
	}, norm.NFKD.String(latin.Replace(text)))
}

// ascii converts a word to the letters a to z and digits; "" if that is not possible.
func ascii(word string) string {
	var b strings.Builder
	for _, r := range plain(word) {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			b.WriteRune(r)
		case r >= utf8.RuneSelf:
			return ""
		}
	}
	return b.String()
}

// refined returns the description of an existing key with further mapping examples.
func refined(k template.Key, c Cluster) string {
	before, after := k.Description, k.Description
	for _, m := range strings.SplitAfter(mappingsFor(k, c), ".") {
		if m = strings.TrimSpace(m); m != "" && !strings.Contains(before, m) && len(after)+len(m) < maxDescription {
			after += " " + m
		}
	}
	return after
}

const maxDescription = 2000

// checkCandidate validates a key that a model, or Rules, has made from a cluster: by the rules for
// keys of patches, and its description must have an example of the cluster.
func checkCandidate(k template.Key, c Cluster) (template.Key, error) {
	k.Required, k.Experimental, k.Deprecated, k.Property, k.Descriptions = false, false, false, "", nil
	if string(k.Default) == "null" {
		k.Default = nil
	}
	k.Description = clip.Text(strings.TrimSpace(k.Description), maxDescription)
	if !slices.ContainsFunc(c.Examples, func(text string) bool { return quotes(k.Description, text) }) {
		k.Description += mappingsFor(k, c)
	}
	if err := (&life{Key: k}).check(); err != nil {
		return k, fmt.Errorf("%w: %w", ErrNoKey, err)
	}
	return k, nil
}

// quotes reports whether a description has a text of clients as an example, in quotation marks: a
// description that only uses the same words has none. Numbers may differ.
func quotes(description, text string) bool {
	said := spoken(text)
	if said == " " {
		return false
	}
	quoted, open := 0, false
	for i, r := range description {
		if r != '\'' {
			continue
		}
		before, _ := utf8.DecodeLastRuneInString(description[:i])
		after, _ := utf8.DecodeRuneInString(description[i+1:])
		switch {
		case unicode.IsLetter(before) && unicode.IsLetter(after): // an apostrophe
		case open && strings.Contains(spoken(description[quoted:i]), said):
			return true
		default:
			quoted, open = i+1, !open
		}
	}
	return false
}

// spoken returns the words of a text without numbers, each between spaces.
func spoken(text string) string {
	out := " "
	for _, w := range template.Words(strings.ReplaceAll(text, "#", " ")) {
		if !isNumber(w.Text) {
			out += w.Text + " "
		}
	}
	return out
}

// mappingsFor is [mappings] for a key of any type, whose values are not known.
func mappingsFor(k template.Key, c Cluster) string {
	if k.Type == template.Boolean && !c.Numbers || k.Type == template.Integer && c.Numbers {
		return mappings(c)
	}
	var b strings.Builder
	for _, text := range c.Examples {
		fmt.Fprintf(&b, " Said as: '%s'.", strings.ReplaceAll(text, "'", "’"))
	}
	return b.String()
}

package template

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// A word is a word of a request, with its position in the text: a sequence of letters, digits and
// marks, or a sign with a meaning, such as "€" or "%". In scripts without spaces between words each
// character is a word. Invisible characters separate words.
type word struct {
	lower      string
	start, end int
}

func wordsIn(text string) (out []word) {
	start := -1
	flush := func(end int) {
		if start >= 0 {
			out = append(out, word{strings.ToLower(text[start:end]), start, end})
			start = -1
		}
	}
	for i, r := range text {
		switch {
		case hidden(r): // Check replaces it by a space
			flush(i)
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar), isSign(text, i, r):
			flush(i)
			start = i
			flush(i + utf8.RuneLen(r))
		case unicode.In(r, unicode.L, unicode.N, unicode.M):
			if start < 0 {
				start = i
			}
		default:
			flush(i)
		}
	}
	flush(len(text))
	return out
}

// isSign reports whether a character is a sign with a meaning of its own: a symbol, some
// punctuation, or the minus of a number.
func isSign(text string, at int, r rune) bool {
	if r == '-' {
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		return !unicode.In(before, unicode.L, unicode.N, unicode.M) && at+1 < len(text) && '0' <= text[at+1] && text[at+1] <= '9'
	}
	return unicode.Is(unicode.S, r) || strings.ContainsRune("%‰#@&*§", r)
}

// coverage records which words of a request are assigned to a key or to "other".
type coverage struct {
	text   string
	words  []word
	mapped []bool // the word is in the fragment of a key
	left   []int  // the number of the fragment of "other" that has the word; 0: none
	leaves int
	about  []word // of the scenario's name; not of its description, which could contain any word
	idle   map[string]bool
}

func newCoverage(t *Template, text string) *coverage {
	words := wordsIn(text)
	return &coverage{
		text: text, words: words, mapped: make([]bool, len(words)), left: make([]int, len(words)),
		about: wordsIn(strings.ReplaceAll(t.Scenario, "_", " ")), idle: functionWordsOf(words),
	}
}

// find returns the position at which the request has the words of a fragment in sequence,
// preferably one where not all of them are mapped.
func (c *coverage) find(fragment string) (from, to int, ok bool) {
	f := wordsIn(fragment)
	if len(f) == 0 {
		return 0, 0, false
	}
	for i := 0; i+len(f) <= len(c.words); i++ {
		if !slices.EqualFunc(c.words[i:i+len(f)], f, func(a, b word) bool { return a.lower == b.lower }) {
			continue
		}
		if !ok {
			from, to, ok = i, i+len(f), true
		}
		if slices.Contains(c.mapped[i:i+len(f)], false) {
			return i, i + len(f), true
		}
	}
	return from, to, ok
}

func (c *coverage) has(fragment string) bool {
	_, _, ok := c.find(fragment)
	return ok
}

// maxBeyond bounds the words with a meaning that a fragment may have beside those of its value:
// "the first of March next year" has four.
const maxBeyond = 4

// take marks the words of a key's fragment as mapped, and returns the fragment as the request has
// it. If a fragment says much more than its value, take marks only the value's words: the other
// words belong to another key, or go to "other".
func (c *coverage) take(fragment string, value []byte) string {
	from, to, _ := c.find(fragment)
	own, beyond := map[string]bool{}, 0
	for _, w := range valueWords(value) {
		own[w.lower] = true
	}
	for _, w := range c.words[from:to] {
		if !own[w.lower] && !c.idle[w.lower] {
			beyond++
		}
	}
	for i := from; i < to; i++ {
		if beyond <= maxBeyond || own[c.words[i].lower] {
			c.mapped[i] = true
		}
	}
	return c.span(from, to)
}

// valueWords returns the words of a value: of the text of a string, or of the JSON of another
// value.
func valueWords(value []byte) []word {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return wordsIn(s)
	}
	return wordsIn(string(value))
}

// leave marks the words of a fragment as one text for "other", if the request has the fragment.
func (c *coverage) leave(fragment string) {
	from, to, _ := c.find(fragment)
	c.leaves++
	for i := from; i < to; i++ {
		c.left[i] = cmp.Or(c.left[i], c.leaves)
	}
}

// other returns the texts for "other", in the request's order and words: the fragments marked by
// leave, and the words that no fragment has. From the latter it removes function words at both
// ends, and texts whose words are all function words or names of the scenario or of a key with a
// value, such as "book a flight" in the scenario flight_booking. In doubt it keeps a word.
func (c *coverage) other(mapped []Mapped) (out []string) {
	about := c.about
	for _, m := range mapped {
		about = append(about, wordsIn(strings.ReplaceAll(m.Key, "_", " "))...)
	}
	for i := 0; i < len(c.words); {
		if c.mapped[i] {
			i++
			continue
		}
		j, says := i, c.left[i] != 0
		for ; j < len(c.words) && !c.mapped[j] && c.left[j] == c.left[i] && (j == i || c.left[i] != 0 || !c.parted(j)); j++ {
			says = says || !c.idle[c.words[j].lower] && !named(about, c.words[j].lower)
		}
		from, to := i, j
		for says && c.left[i] == 0 && c.idle[c.words[from].lower] {
			from++
		}
		for says && c.left[i] == 0 && c.idle[c.words[to-1].lower] {
			to--
		}
		if says {
			out = append(out, strings.Join(strings.Fields(c.span(from, to)), " "))
		}
		i = j
	}
	return out
}

// parted reports whether a punctuation mark precedes a word.
func (c *coverage) parted(i int) bool {
	between := c.text[c.words[i-1].end:c.words[i].start]
	return between != "." && between != "," && between != ":" && strings.ContainsAny(between, ",.;:!?()\n")
}

func (c *coverage) span(from, to int) string {
	if from == to {
		return ""
	}
	return c.text[c.words[from].start:c.words[to-1].end]
}

// named reports whether a word names the scenario: it equals one of the scenario's words, or begins
// with at least the same four letters.
func named(about []word, w string) bool {
	for _, a := range about {
		n := min(len(a.lower), len(w))
		if a.lower == w || n >= 4 && a.lower[:n] == w[:n] {
			return true
		}
	}
	return false
}

// packed returns texts as the value of the key "other": one string if the template requires a
// string and it is short, otherwise an array. The array stays within [MaxFragments] and
// [MaxFragmentBytes], so that nothing of it is lost: packed splits long texts, and joins neighbours
// while there are too many.
func packed(texts []string, typ Type) json.RawMessage {
	if joined := strings.Join(texts, "; "); typ == String && len(joined) <= MaxFragmentBytes {
		return text(joined)
	}
	var short []string
	for _, t := range texts {
		for len(t) > MaxFragmentBytes {
			at := strings.LastIndexByte(t[:MaxFragmentBytes+1], ' ')
			if at <= 0 { // one long word
				for at = MaxFragmentBytes; !utf8.RuneStart(t[at]); at-- {
				}
			}
			short, t = append(short, t[:at]), strings.TrimSpace(t[at:])
		}
		short = append(short, t)
	}
	few := short[:0]
	for i, t := range short {
		if last := len(few) - 1; last >= 0 && len(few)+len(short)-i > MaxFragments && len(few[last])+len("; ")+len(t) <= MaxFragmentBytes {
			few[last] += "; " + t
			continue
		}
		few = append(few, t)
	}
	return marshal(few)
}

// functionWordsOf returns the function words of the request's probable language, because function
// words of another language may have a meaning ("son", "bin").
func functionWordsOf(words []word) map[string]bool {
	best, most := functionWords()[0], 0
	for _, list := range functionWords() {
		n := 0
		for _, w := range words {
			if list[w.lower] {
				n++
			}
		}
		if n > most {
			best, most = list, n
		}
	}
	return best
}

// functionWords are the words of English, German, French and Spanish that have no meaning on their
// own: articles, prepositions, conjunctions, pronouns, auxiliary verbs and courtesy. They include
// no negations, no numbers, no words that limit or offer a choice, and no word that could be a
// wish.
var functionWords = sync.OnceValue(func() (out []map[string]bool) {
	for _, list := range []string{
		"a an the this that these those of to from in on at for with as and so then also too it its i me my we us our you your he she they them is are was were be am do does did can could will would shall should may might please thanks thank hello hi hey want need like prefer wish wishes make get give let there here s d m ll ve re just",
		"ein eine einen einem einer der die das den dem des dies diese dieser von vom zu zum zur aus in im an am auf für bei mit als und so dann auch es ich mir mich wir uns du sie ihr ist sind war bin kann könnte würde will möchte bitte danke hallo gib mach hätte gern gerne brauche",
		"un une le la les des de du d au aux à en dans sur pour par avec et puis aussi il je me mon ma nous vous est sont suis peux peut pourrait veux voudrais plaît merci bonjour s il l m j",
		"el los las una unos unas del al y para por con en es son soy quiero quisiera puede favor gracias hola me mi",
	} {
		words := map[string]bool{}
		for _, w := range strings.Fields(list) {
			words[w] = true
		}
		out = append(out, words)
	}
	return out
})

package template

// A Word is a word of a text, or a sign with a meaning, such as "€".
type Word struct {
	Text     string // in lower case
	Function bool   // it has no meaning on its own: an article, a preposition, courtesy
	Attached bool   // it follows the word before without a space
}

// Words returns the words of a text. The function words are those of the text's probable language.
func Words(text string) []Word {
	words := wordsIn(text)
	idle := functionWordsOf(words)
	out := make([]Word, len(words))
	for i, w := range words {
		out[i] = Word{Text: w.lower, Function: idle[w.lower], Attached: i > 0 && words[i-1].end == w.start}
	}
	return out
}

// Package ngrams is an embedder that needs no model: hashed words and character n-grams. It
// is degraded: it finds texts alike that share words or parts of words, and knows nothing
// of synonyms or of other languages. A text has the same vector on every machine.
package ngrams

// Package plain makes text from strangers safe for a terminal. Text of a peer,
// a document or a model must not move the cursor, change the title, hide words
// or reverse their order.
//
// Unsafe are control characters (C0, DEL and C1), characters that format and
// show nothing (bidirectional marks, embeddings, overrides and isolates,
// zero-width characters, tags), and bytes that are not UTF-8. [Text] and [Line]
// replace them by U+FFFD. [JSON] escapes them, so that the value does not
// change. Characters that scripts and emoji need are kept: variation selectors,
// and a joiner between two letters or signs that can be joined.
package plain

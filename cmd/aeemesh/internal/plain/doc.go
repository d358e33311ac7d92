// Package plain makes text of strangers fit for a terminal. What a peer sends, a
// document declares or a model answers must not move the cursor, change the
// title, hide words or turn their order around.
//
// Not fit are control characters (C0, DEL and C1), characters that format and
// show nothing (bidirectional marks, embeddings, overrides and isolates, zero-width
// characters, tags), and bytes that are no UTF-8. [Text] and [Line] put U+FFFD
// in their place. [JSON] escapes them, so that the value stays what it was. What
// scripts and emoji need stays: variation selectors, and a joiner between two
// letters or signs that can be joined.
package plain

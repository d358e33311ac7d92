// Package recent remembers the last ids of many. A follower of replies recognises by them what it
// has yielded before: the same reply may arrive twice, and is read from the stream again.
package recent

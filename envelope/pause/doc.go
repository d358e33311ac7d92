// Package pause waits for a duration or the end of a context. It imports no other package of this
// module, so every package can use it.
package pause

// Package pause waits for a duration or the end of a context, and wakes what waits for a signal. It
// imports no other package of this module, so every package can use it.
package pause

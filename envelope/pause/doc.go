// Package pause waits. It stands on nothing, so that every package can use it.
package pause

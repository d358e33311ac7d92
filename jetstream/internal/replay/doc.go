// Package replay reads the messages of several streams in the order of time, once or
// for as long as new ones come.
package replay

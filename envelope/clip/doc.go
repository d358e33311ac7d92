// Package clip shortens texts from peers that are repeated in an error, an event or a
// log.
package clip

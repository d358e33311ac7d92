//go:build !race

package natstest

// Raced tells that the race detector is on: everything takes ten times as long.
const Raced = false

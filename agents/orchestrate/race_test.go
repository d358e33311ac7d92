//go:build race

package orchestrate_test

// raceEnabled tells that everything takes ten times as long.
const raceEnabled = true

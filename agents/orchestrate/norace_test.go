//go:build !race

package orchestrate_test

const raceEnabled = false

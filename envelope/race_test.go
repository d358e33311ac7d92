//go:build race

package envelope_test

// raceEnabled reports whether the race detector is on; it makes pools drop items at
// random.
const raceEnabled = true

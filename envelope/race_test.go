//go:build race

package envelope_test

// raceEnabled tells that pools drop things at random, as the race detector
// makes them do.
const raceEnabled = true

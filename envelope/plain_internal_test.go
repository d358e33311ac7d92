package envelope

import (
	"math/rand/v2"
	"testing"
	"unicode/utf8"
)

// TestPlainEnd compares the search by eight bytes with a search byte by byte.
func TestPlainEnd(t *testing.T) {
	slow := func(d string, i int) int {
		for i < len(d) && d[i] >= 0x20 && d[i] != '"' && d[i] != '\\' && d[i] < utf8.RuneSelf {
			i++
		}
		return i
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		d := make([]byte, random.IntN(40))
		for i := range d {
			d[i] = byte(0x20 + random.IntN(0x5f))
			if random.IntN(12) == 0 {
				d[i] = byte(random.IntN(256))
			}
		}
		for i := range len(d) + 1 {
			want := slow(string(d), i)
			if got := plainEnd(d, i); got != want {
				t.Fatalf("plainEnd(%q, %d) = %d, want %d", d, i, got, want)
			}
			if got := plainEnd(string(d), i); got != want {
				t.Fatalf("plainEnd of the string %q, %d = %d, want %d", d, i, got, want)
			}
		}
	}
}

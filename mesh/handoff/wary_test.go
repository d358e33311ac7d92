package handoff

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// A client must send the first line of a stream, which has the token, by one deadline: bytes that
// arrive do not extend it. After that line each read extends the deadline.
func TestTheFirstLineHasOneDeadline(t *testing.T) {
	t.Parallel()
	var at []int
	read := 0
	w := &wary{Reader: iotest.OneByteReader(strings.NewReader("ab\nc\n")), extend: func() { at = append(at, read) }}
	for b := make([]byte, 8); ; read++ {
		if _, err := w.Read(b); err == io.EOF {
			break
		}
	}
	if len(at) != 4 || at[0] != 0 || at[1] != 3 {
		t.Errorf("the deadline moves at the reads %v, want 0, 3, 4, 5", at)
	}
}

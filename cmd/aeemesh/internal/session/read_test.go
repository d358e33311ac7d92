package session

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
)

// A read of standard input that waits ends with the command's context.
func TestAReadIsInterrupted(t *testing.T) {
	t.Parallel()
	silent, _ := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err = io.ReadAll(Interruptible(ctx, silent))
	}()
	cancel()
	<-done
	if !errors.Is(err, outcome.ErrInterrupted) {
		t.Errorf("got %v", err)
	}
}

func TestAnInterruptibleReaderReadsAll(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a line of text\n", 10_000)
	in := Interruptible(t.Context(), strings.NewReader(text))
	first := make([]byte, 3)
	if _, err := io.ReadFull(in, first); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(in)
	if err != nil || string(first)+string(rest) != text {
		t.Errorf("got %d bytes, %v", len(first)+len(rest), err)
	}
	if n, err := in.Read(first); n != 0 || err != io.EOF {
		t.Errorf("after the end: %d, %v", n, err)
	}
}

// What is larger than its bound is refused: a part of it is not what was given.
func TestWhatIsTooLargeIsNotReadInPart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"four": "", "fives": "standard input is larger than 4 bytes"} {
		a := &App{Stdin: strings.NewReader(text)}
		data, err := a.ReadWhole("-", 4)
		if want == "" && (err != nil || string(data) != text) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %q, %v", text, data, err)
		}
	}
}

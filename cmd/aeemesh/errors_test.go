package main

import (
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope"
)

// --retries retries only where nothing was done: the hint must not recommend it
// where it has no effect.
func TestOnlyWhatRetriesHelpsIsToldOfIt(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  *envelope.Error
		hint string
	}{
		{&envelope.Error{Code: envelope.CodeBusy, Retryable: true}, "--retries"},
		{&envelope.Error{Code: envelope.CodeDraining, Retryable: true}, "--retries"},
		{&envelope.Error{Code: envelope.CodeRateLimited, Retryable: true}, "--retries"},
		{&envelope.Error{Code: "E_OF_AN_AGENT", Retryable: true}, "may help"},
		{&envelope.Error{Code: envelope.CodeUnavailable, Retryable: true}, "may help"},
		{&envelope.Error{Code: "E_OF_AN_AGENT"}, ""},
	} {
		got := outcome.Hint(tc.err)
		if !strings.Contains(got, tc.hint) || tc.hint == "" && got != "" || tc.hint != "--retries" && strings.Contains(got, "--retries") {
			t.Errorf("%s, retryable %t: hint %q, want %q in it", tc.err.Code, tc.err.Retryable, got, tc.hint)
		}
	}
}

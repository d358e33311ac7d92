package sign

import (
	"strings"
	"testing"
)

// An error about a record names the member of the record, and not a Go type.
func TestParseRecordNamesTheMember(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"kid":"k","v":"1"}`:          `trust record: unknown member /v`,
		`{"kid":5}`:                    `trust record: /kid cannot be a JSON number`,
		`{"kid":"k","from":"agent.a"}`: `trust record: /from cannot be a JSON string`,
		`{"kid":"k","expires":"soon"}`: `trust record: /expires cannot be this JSON string`,
		`[]`:                           `trust record: it cannot be a JSON array`,
		`{"kid":`:                      `trust record: `,
		`{"kid":"k","kid":"k"}`:        `trust record: `,
	} {
		_, err := ParseRecord([]byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

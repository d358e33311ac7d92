package term

import (
	"io"
	"log/slog"
	"strings"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
)

// FormatJSON is the format of a log of JSON records.
const JSONLog = "json"

// Logger returns a log on stderr in a format, text or json; nil if it knows no
// such format.
func (t *Terminal) Logger(format string, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: withUnits}
	switch strings.ToLower(format) {
	case "text":
		return slog.New(slog.NewTextHandler(t.Words, opts))
	case JSONLog:
		return slog.New(slog.NewJSONHandler(escaped{t.Words}, opts))
	}
	return nil
}

// RecordWords makes messages for people records of the log, if its format is
// JSON. They are written at every level, because they are no diagnostics.
func (t *Terminal) RecordWords(format string) {
	if t.Records == nil && strings.EqualFold(format, JSONLog) {
		t.Records = slog.New(slog.NewJSONHandler(escaped{t.Words}, &slog.HandlerOptions{ReplaceAttr: withUnits}))
	}
}

// withUnits writes durations in JSON as in text, "30s"; slog would write a
// number of nanoseconds.
func withUnits(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// escaped escapes control characters in a log's JSON, so that it cannot command
// a terminal.
type escaped struct{ to io.Writer }

func (e escaped) Write(p []byte) (int, error) {
	if _, err := e.to.Write(plain.JSON(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

package secret_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/secret/secrettest"
)

// A value of any type is logged without the secret, in the words of the handler: bytes, which are a
// text for one handler, base64 for the other, and numbers for %v, too.
func TestLogsOfAnyValueAreScrubbed(t *testing.T) {
	t.Parallel()
	type inner struct{ Raw []byte }
	var r secret.Redactor
	r.Add(secret.New(value), secret.New("s3cr"))
	decimal := strings.Trim(fmt.Sprint([]byte(value)), "[]")
	for name, v := range map[string]any{
		"bytes":           []byte("it is " + value),
		"few bytes":       []byte("it is s3cr"),
		"JSON":            json.RawMessage(`{"k":"` + value + `"}`),
		"a struct":        struct{ Text string }{value},
		"bytes in struct": struct{ In inner }{inner{[]byte(value)}},
		"both":            struct{ Text, In any }{value, inner{[]byte(value)}},
		"a pointer":       struct{ In *inner }{&inner{[]byte(value)}},
		"a list":          []string{"a", value},
		"an error":        fmt.Errorf("no %s: %w", value, io.EOF),
		"joined errors":   errors.Join(io.EOF, errors.New(value)),
	} {
		for kind, handler := range map[string]func(io.Writer) slog.Handler{
			"text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) },
			"JSON": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) },
		} {
			var out bytes.Buffer
			slog.New(secret.LogHandler(handler(&out), &r)).Info("x", "v", v, slog.Group("g", "v", v))
			line := out.String()
			if strings.Contains(line, decimal) || strings.Contains(line, "s3cr") || secrettest.Find(line, map[string]string{"it": value}) != nil {
				t.Errorf("%s as %s: %s", name, kind, line)
			}
			if name != "a pointer" && strings.Count(line, secret.Redacted) < 2 {
				t.Errorf("%s as %s: nothing is taken out: %s", name, kind, line)
			}
		}
	}
	var out bytes.Buffer
	slog.New(secret.LogHandler(slog.NewTextHandler(&out, nil), &r)).Info("x", "bytes", []byte("clean"), "list", []int{1, 2})
	if !strings.Contains(out.String(), `bytes="clean" list="[1 2]"`) {
		t.Errorf("a value without a secret is changed: %s", out.String())
	}
}

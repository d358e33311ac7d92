//go:build unix

package mcp_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// lockedBuffer collects a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The last output of a program is logged, also without a newline: it often says why the program
// ended.
func TestTheLastWordsOfAProgramAreLogged(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	servers := newServers(t, mcp.Server{Command: []string{"/bin/sh", "-c", "printf 'the token is missing' >&2; exit 1"}}, func(c *mcp.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	if _, err := open(t, servers, "mcp://it/x").Tools(t.Context()); err == nil {
		t.Error("a server that ends at once has tools")
	}
	eventually(t, "the last words are logged", func() bool { return strings.Contains(log.String(), "the token is missing") })
}

// token is a credential that the test server repeats where its texts are cut.
const token = "t0ken-Kq7Zx2Wd9Lm4"

// A long text is truncated in the middle of a credential that the server repeats: no part of the
// credential reaches the model or the log.
func TestACredentialAtACutIsRemoved(t *testing.T) {
	t.Parallel()
	var known secret.Redactor
	known.Add(secret.New(token))
	var log lockedBuffer
	servers := newServers(t, mcp.Server{Command: self(t, "leak")}, func(c *mcp.Config) {
		c.Log = slog.New(secret.LogHandler(slog.NewTextHandler(&log, nil), &known))
		c.Redactor = &known
	})
	byName := tools(t, open(t, servers, "mcp://it"))
	for _, name := range []string{"leak", "refuse"} {
		_, err := byName[name].Call(t.Context(), json.RawMessage(`{}`))
		if err == nil || len(err.Error()) < 4000 || len(err.Error()) > 5000 || strings.Contains(known.Scrub(err.Error()), token[:4]) {
			t.Errorf("%s: an error of %v", name, err)
		}
	}
	if d := byName["leak"].Definition().Description; len(d) < 16000 || strings.Contains(d, token[:4]) {
		t.Errorf("the description ends with %q", d[max(0, len(d)-100):])
	}
	eventually(t, "standard error is logged", func() bool { return strings.Contains(log.String(), "the next line") })
	if got := log.String(); strings.Contains(got, token[:4]) || !strings.Contains(got, "xxxx"+secret.Redacted) {
		t.Errorf("the log is %s", got)
	}
}

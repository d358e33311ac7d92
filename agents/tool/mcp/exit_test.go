//go:build unix

package mcp_test

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// When a server's program ends during a call, the log says how it ended.
func TestTheLogSaysHowAServersProgramEnded(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{"exit": "exit status 7", "quit": "exit status 0", "die": "signal: killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			ended := make(chan string, 16)
			servers := newServers(t, mcp.Server{Command: self(t, "chatter")}, func(c *mcp.Config) {
				c.Log = slog.New(endings{c.Log.Handler(), ended})
			})
			byName := tools(t, open(t, servers, "mcp://it"))
			if _, err := byName[how].Call(t.Context(), json.RawMessage(`{}`)); err == nil {
				t.Error("the call has an answer")
			}
			if got := <-ended; got != want {
				t.Errorf("the log says %q, want %q", got, want)
			}
		})
	}
}

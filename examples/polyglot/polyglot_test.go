package polyglot_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// The agents answer a malformed message with an error, and continue.
func TestMalformedMessagesEndNoAgent(t *testing.T) {
	t.Parallel()
	for entity, command := range map[string][]string{
		"agent.capitals":   {"python3", "agent.py"},
		"agent.word_count": {"node", "agent.mjs"},
	} {
		t.Run(command[0], func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(command[0])
			if err != nil {
				t.Skip(err)
			}
			srv := natstest.Run(t, natsd.Config{})
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			t.Cleanup(cancel)
			agent := exec.CommandContext(ctx, program, command[1])
			agent.Env = append(os.Environ(), "NATS_URL="+srv.ClientURL(), "PYTHONDONTWRITEBYTECODE=1")
			var said strings.Builder
			agent.Stderr = &said
			if err := agent.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = agent.Process.Kill() // it has ended, or it ends now
				_ = agent.Wait()
				if t.Failed() {
					t.Logf("%.2000s", said.String())
				}
			})
			conn := natstest.Conn(t, srv)
			ask := func(body string) (string, error) {
				asking, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				msg, err := conn.RequestWithContext(asking, entity, []byte(body))
				if err != nil {
					return "", err
				}
				var answer struct {
					Type    string
					Payload struct{ Code, Text string }
				}
				err = json.Unmarshal(msg.Data, &answer)
				return answer.Type + " " + answer.Payload.Code + strings.ToLower(answer.Payload.Text), err
			}
			task := `{"v":"1","type":"task","to":"` + entity + `","from":"human.ada","intent":"x","payload":{"text":"hello"}}`
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				if got, err := ask(task); err == nil {
					if got != "result hello" {
						t.Errorf("a task: %s", got)
					}
					break
				}
				select {
				case <-ctx.Done():
					t.Fatal("the agent does not answer")
				case <-tick.C:
				}
			}
			for _, body := range []string{
				"hello", "", "\xff\xfe", "null", "7", `"text"`, "[]", `{"id":7,"corr":[],"from":{},"requires":"x"}`,
				strings.Repeat("[", 100_000), `{"trace":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`,
				`{"v":"1","payload":{"text":"` + strings.Repeat("\u00fc", 400_000) + `"}}`,
			} {
				if got, err := ask(body); err != nil || got != "error E_INVALID_ENVELOPE" {
					t.Errorf("%.60s: %s, %v", body, got, err)
				}
			}
			if got, err := ask(task); err != nil || got != "result hello" {
				t.Errorf("a task afterwards: %s, %v", got, err)
			}
		})
	}
}

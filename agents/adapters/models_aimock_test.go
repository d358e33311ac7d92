package adapters

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/aimocktest"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// said is long enough that the double can break it.
const said = "One by one the small boats came back into the harbour, and the old man counted them twice before he put out the lamp."

// operator points two providers at two stages.
func operator(t *testing.T, openai, anthropic *aimocktest.Stage) (*Set, agents.Options) {
	t.Helper()
	s := newSet(t, `{"models": {"providers": {"openai": {"base_url": "`+openai.URL+`/v1"}, "anthropic": {"base_url": "`+anthropic.URL+`"}}}}`, nil)
	return s, agents.Options{Secret: env("OPENAI_API_KEY", "key-o", "ANTHROPIC_API_KEY", "key-a")}
}

const routed = `"provider": "openai", "preferred": "gpt-4o", "fallbacks": [{"provider": "anthropic", "model": "claude-sonnet-4-5"}]`

func TestRateLimitedPrimaryAgainstAimock(t *testing.T) {
	t.Parallel()
	server := aimocktest.Start(t)
	primary := server.Stage(t, modeltest.Turn{Fail: &model.Error{Kind: model.ErrRateLimited, RetryAfter: time.Hour}})
	fallback := server.Stage(t, modeltest.Turn{Text: said})
	s, opts := operator(t, primary, fallback)
	m, _, err := s.Model(definition(t, routed), opts)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		res, err := m.Generate(t.Context(), hello(), nil)
		if err != nil || res.Message.Content != said || res.Provider != "anthropic" || !res.Priced {
			t.Fatalf("got %+v, %v", res, err)
		}
		if len(res.Tried) != 1 || res.Tried[0].Kind != model.ErrRateLimited || res.Tried[0].RetryAfter > time.Hour || res.Tried[0].RetryAfter < 59*time.Minute {
			t.Errorf("tried %v", res.Tried)
		}
	}
	if n := len(primary.Requests()); n != 1 {
		t.Errorf("who asked to be left alone was asked %d times", n)
	}
	if body := string(fallback.Requests()[0].Body); !strings.Contains(body, "claude-sonnet-4-5") {
		t.Errorf("the fallback was asked for another model: %s", body)
	}
}

// A stream that breaks off is continued on the next route, and its sender gets the text once.
func TestCutStreamAgainstAimock(t *testing.T) {
	t.Parallel()
	server := aimocktest.Start(t)
	for name, c := range map[string]struct{ second, want string }{
		"the same text": {said, said},
		"another text":  {strings.Replace(said, "small", "large", 1), strings.Replace(said, "small", "large", 1)},
	} {
		primary := server.Stage(t, modeltest.Turn{Text: said, Fail: &model.Error{Kind: model.ErrUnavailable}})
		fallback := server.Stage(t, modeltest.Turn{Text: c.second})
		s, opts := operator(t, primary, fallback)
		s.Use(&opts)
		a, err := agents.New(document(t, routed), opts)
		if err != nil {
			t.Fatal(err)
		}
		text, restarts, payload := converse(t, a)
		if text != c.want || !strings.Contains(payload, c.want) {
			t.Errorf("%s: told %q, answered %s", name, text, payload)
		}
		if wanted := map[bool]int{true: 0, false: 1}[c.second == said]; restarts != wanted {
			t.Errorf("%s: %d restarts, want %d", name, restarts, wanted)
		}
		if len(primary.Requests()) != 1 || len(fallback.Requests()) != 1 {
			t.Errorf("%s: %d and %d requests", name, len(primary.Requests()), len(fallback.Requests()))
		}
	}
}

// converse serves an agent, sends it a task, and returns the final text of the stream, the number
// of its restarts, and the result.
func converse(t *testing.T, a *agents.Agent) (text string, restarts int, payload string) {
	t.Helper()
	node, err := mesh.New(natstest.Conn(t, natstest.Run(t, natsd.Config{})), mesh.Config{Entity: "human.ada"})
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	a.Ready = func() { close(ready) }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, node) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	<-ready
	task := envelope.New(envelope.TypeTask, "human.ada", a.Entity, "test.run", json.RawMessage(`{"text":"tell me"}`))
	task.Requires = json.RawMessage(`{"stream":true}`)
	var told strings.Builder
	reply, err := node.Send(ctx, task, mesh.SendOptions{OnStream: func(e *envelope.Envelope) error {
		var p struct {
			Text    string `json:"text"`
			Restart bool   `json:"restart"`
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			return err
		}
		if p.Restart {
			told.Reset()
			restarts++
		}
		told.WriteString(p.Text)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return told.String(), restarts, string(reply.Payload)
}

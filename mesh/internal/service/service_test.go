package service_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/probe"
	"github.com/aeemesh/aeemesh/mesh/internal/service"
)

// asked sends the request of a verb, and returns the answers.
func asked(t *testing.T, cfg service.Config, change func(*service.Service), verb micro.Verb, body string) (out []string) {
	t.Helper()
	cfg.Send = func(to string, body []byte) {
		if to != "_INBOX.1" {
			t.Errorf("an answer to %q", to)
		}
		out = append(out, string(body))
	}
	s := service.New(cfg)
	if change != nil {
		change(s)
	}
	handle := s.Monitor(slices.Index(service.Verbs[:], verb))
	handle(&nats.Msg{Data: []byte(body)}) // has no reply subject
	handle(&nats.Msg{Data: []byte(body), Reply: "_INBOX.1"})
	return out
}

func config() service.Config {
	return service.Config{
		Entity: "agent.a", ID: "me", Version: "1.2.3", Concurrency: 2, Queue: 3, Signatures: "off", QueueGroup: "q",
		Live: "aee.agent.a", Ask: "aee.ask.agent.a", Work: "aee.work.*.agent.a",
		Intents: func() []string { return []string{"a.b.c", "d.e.f"} }, Durable: func() string { return "off" },
		Lane: func() any { return nil }, Counters: func() any { return map[string]int{"queued": 7} },
	}
}

func decoded[T any](t *testing.T, answers []string) (out T) {
	t.Helper()
	if len(answers) != 1 {
		t.Fatalf("%d answers", len(answers))
	}
	if err := json.Unmarshal([]byte(answers[0]), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPings(t *testing.T) {
	t.Parallel()
	if got := asked(t, config(), nil, micro.PingVerb, probe.WatchBody); len(got) > 0 {
		t.Errorf("a watch is answered: %q", got)
	}
	if got := asked(t, config(), nil, micro.PingVerb, probe.PingBody); !slices.Equal(got, []string{""}) {
		t.Errorf("a ping of the mesh: %q", got)
	}
	cfg := config()
	cfg.AgentID, cfg.Prefix, cfg.SealKeys, cfg.Scenarios = "id-1", "berlin", []string{"k2", "k1"}, []string{"x.y"}
	cfg.Metadata = map[string]string{"entity": "agent.posing", "team": "blue"}
	ping := decoded[micro.Ping](t, asked(t, cfg, nil, micro.PingVerb, ""))
	for key, want := range map[string]string{
		"entity": "agent.a", "team": "blue", "concurrency": "2", "queue": "3", "agent_id": "id-1", "prefix": "berlin", "sealed": "1", "seal_keys": "k2,k1",
		service.MetaIntents: "a.b.c,d.e.f", service.MetaScenarios: "x.y", service.MetaDurable: "off", service.MetaSignatures: "off", service.MetaHandoff: "1",
	} {
		if ping.Metadata[key] != want {
			t.Errorf("%s is %q, want %q", key, ping.Metadata[key], want)
		}
	}
	if ping.ID != "me" || ping.Version != "1.2.3" {
		t.Errorf("%+v", ping)
	}
	for version, want := range map[string]string{"2026.01.15": "2026.1.15", "00.010.000": "0.10.0", "1.02.3-rc.01+007.0": "1.2.3-rc.01+007.0"} {
		cfg.Version = version
		if got := decoded[micro.Ping](t, asked(t, cfg, nil, micro.PingVerb, "")).Version; got != want {
			t.Errorf("version %s is %s, want %s", version, got, want)
		}
	}
	cfg.Intents = func() (names []string) {
		for i := range 1000 {
			names = append(names, fmt.Sprint("intent.number.", i))
		}
		return names
	}
	long := decoded[micro.Ping](t, asked(t, cfg, nil, micro.PingVerb, "")).Metadata[service.MetaIntents]
	if len(long) > 4200 || !strings.HasSuffix(long, ",…") {
		t.Errorf("%d characters of intents: …%s", len(long), long[len(long)-20:])
	}
}

// The endpoint of the durable lane is there while the agent is on the lane.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	on := config()
	on.Lane = func() any { return map[string]string{"state": "working"} }
	for _, c := range []struct {
		cfg   service.Config
		names []string
	}{{config(), []string{"task", "ask"}}, {on, []string{"task", "ask", "work"}}} {
		var names []string
		for _, e := range decoded[micro.Info](t, asked(t, c.cfg, nil, micro.InfoVerb, "")).Endpoints {
			names = append(names, e.Name)
		}
		if !slices.Equal(names, c.names) {
			t.Errorf("info: %q", names)
		}
		names = nil
		for _, e := range decoded[micro.Stats](t, asked(t, c.cfg, nil, micro.StatsVerb, "")).Endpoints {
			names = append(names, e.Name)
		}
		if !slices.Equal(names, c.names) {
			t.Errorf("stats: %q", names)
		}
	}
	subjects := 0
	service.New(config()).Subjects(func(to string, _ nats.MsgHandler) {
		if !strings.HasPrefix(to, "$SRV.") || !strings.Contains(to, "agent") {
			t.Errorf("subject %q", to)
		}
		subjects++
	})
	if subjects != 6 {
		t.Errorf("%d subjects, want one of the service and one of the instance for each of three verbs", subjects)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	stats := decoded[micro.Stats](t, asked(t, config(), func(s *service.Service) {
		s.Stats[service.Task].Record(2*time.Second, nil)
		s.Stats[service.Task].Record(0, envelope.Errorf(envelope.CodeBusy, "full\nof tasks"))
		s.Stats[service.Ask].Count(nil)
		if all, failed := s.Stats[service.Task].Answers(); all != 2 || failed != 1 {
			t.Errorf("%d answers, %d errors", all, failed)
		}
	}, micro.StatsVerb, ""))
	task, ask := stats.Endpoints[0], stats.Endpoints[1]
	if task.NumRequests != 2 || task.NumErrors != 1 || task.ProcessingTime != 2*time.Second || task.AverageProcessingTime != time.Second || string(task.Data) != `{"queued":7}` {
		t.Errorf("%+v", task)
	}
	if !strings.HasPrefix(task.LastError, "E_BUSY:full") || strings.Contains(task.LastError, "\n") {
		t.Errorf("last error %q", task.LastError)
	}
	if ask.NumRequests != 1 || ask.LastError != "" || ask.Subject != "aee.ask.agent.a" {
		t.Errorf("%+v", ask)
	}
}

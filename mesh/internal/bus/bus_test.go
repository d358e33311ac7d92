package bus

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
)

// A sent event, as its subscriber gets it.
type sent struct {
	to     string
	e      *envelope.Envelope
	header nats.Header
}

// listening returns an agent and what it has sent.
func listening(t *testing.T) (*Agent, func() []sent) {
	t.Helper()
	m, err := subject.New("")
	if err != nil {
		t.Fatal(err)
	}
	var all []sent
	b := &Bus{Subjects: m, Publish: func(to string, body []byte, header nats.Header) error {
		e, err := envelope.Parse(slices.Clone(body))
		if err != nil {
			t.Errorf("%v: %s", err, body)
			return err
		}
		all = append(all, sent{to, e, header})
		return nil
	}}
	a := &Agent{Bus: b, Entity: "agent.a", Instance: "instance-1", Log: slog.New(slog.DiscardHandler)}
	return a, func() []sent {
		out := all
		all = nil
		return out
	}
}

func members(t *testing.T, s []sent) map[string]any {
	t.Helper()
	if len(s) != 1 {
		t.Fatalf("%d events", len(s))
	}
	out := map[string]any{}
	if err := json.Unmarshal(s[0].e.Payload, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEventsOfTasks(t *testing.T) {
	t.Parallel()
	a, took := listening(t)
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.a", "x.y.z", json.RawMessage(`{"secret":"payload"}`))
	task.Corr, task.ReplyTo = "workflow-1", "task-0000"
	a.Task(intents.TaskStarted, Task{Envelope: task, Queued: time.Now(), Run: "run-1"}, nil)
	got := took()
	started := members(t, got)
	if got[0].e.To != "bus.mesh.task" || got[0].e.From != "agent.a" || got[0].e.Corr != "workflow-1" || got[0].e.Intent != intents.TaskStarted || strings.Contains(string(got[0].e.Payload), "secret") {
		t.Errorf("%+v", got[0].e)
	}
	for key, want := range map[string]any{"task": task.ID, "intent": "x.y.z", "sender": "human.ada", "instance": "instance-1", "parent": "task-0000", "run": "run-1", "epoch": nil, "duration_ms": nil} {
		if started[key] != want {
			t.Errorf("started: %s is %v, want %v", key, started[key], want)
		}
	}
	a.Task(intents.TaskFailed, Task{
		Envelope: task, Queued: time.Now().Add(-time.Second), Usage: json.RawMessage(`{"input_tokens":7}`), Run: "run-1", Claimed: true, Epoch: 3, Attempt: 2, Parked: "paused", To: "agent.b", Child: "task-0002",
	}, envelope.Errorf(envelope.CodeBusy, "full"))
	ended := members(t, took())
	if ms, _ := ended["duration_ms"].(float64); ms < 1000 {
		t.Errorf("duration %v", ended["duration_ms"])
	}
	for key, want := range map[string]any{"epoch": 3.0, "attempt": 2.0, "status": "paused", "handed_to": "agent.b", "child": "task-0002"} {
		if ended[key] != want {
			t.Errorf("ended: %s is %v, want %v", key, ended[key], want)
		}
	}
	if ended["error"].(map[string]any)["code"] != "E_BUSY" || ended["usage"].(map[string]any)["input_tokens"] != 7.0 {
		t.Errorf("%v", ended)
	}
}

func TestFailuresOnly(t *testing.T) {
	t.Parallel()
	a, took := listening(t)
	a.FailuresOnly = true
	task, failure := Task{Envelope: envelope.New(envelope.TypeTask, "human.ada", "agent.a", "x.y.z", nil)}, envelope.Errorf(envelope.CodeBusy, "full")
	a.Task(intents.TaskStarted, task, nil)
	a.Step(intents.RunStepStarted, "workflow-1", intents.StepEvent{Step: "one"}, nil)
	if got := took(); len(got) > 0 {
		t.Errorf("%d events without a failure", len(got))
	}
	a.Task(intents.TaskFailed, task, failure)
	a.Step(intents.RunStepStarted, "workflow-1", intents.StepEvent{Step: "one", Error: failure, Detail: strings.Repeat("x", 2*maxDetail), Instance: "posing"}, nil)
	got := took()
	if len(got) != 2 || got[1].e.To != "bus.mesh.run" {
		t.Fatalf("%+v", got)
	}
	step := members(t, got[1:])
	if step["instance"] != "instance-1" || len(step["detail"].(string)) > maxDetail+8 {
		t.Errorf("%v", step)
	}
}

// The stream of the bus drops heartbeats after a minute, and keeps the other announcements.
func TestAnnouncements(t *testing.T) {
	t.Parallel()
	a, took := listening(t)
	a.Announce(intents.AgentJoined, Presence{Status: "healthy", Entity: "agent.posing"})
	joined := took()
	if m := members(t, joined); m["entity"] != "agent.a" || m["instance"] != "instance-1" || joined[0].e.Corr != "instance-1" || joined[0].header != nil {
		t.Errorf("%v, header %v", m, joined[0].header)
	}
	a.Announce(intents.AgentHeartbeat, Presence{Status: "healthy"})
	if beat := took(); len(beat) != 1 || beat[0].header.Get("Nats-TTL") != "60s" || beat[0].e.To != "bus.mesh.agent" {
		t.Errorf("%+v", beat)
	}
	a.Bus.Publish = func(string, []byte, nats.Header) error { return errors.New("no connection") }
	a.Announce(intents.AgentLeft, Presence{}) // is logged
	if err := a.Bus.Broadcast("agent.a", nil, "not a topic", "x.y.z", "", nil, nil, nil); err == nil {
		t.Error("a topic with spaces is accepted")
	}
}

// A flood of bad messages does not flood the bus: one alert a second for each code. A dead letter
// is always reported.
func TestAlerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, took := listening(t)
		bad, replay, stale := envelope.New(envelope.TypeTask, "human.eve", "agent.a", "x.y.z", nil), envelope.Errorf(envelope.CodeReplay, "again"), envelope.Errorf(envelope.CodeSigRequired, "old")
		a.Alert(bad, replay)
		if m := members(t, took()); m["code"] != "E_REPLAY" || m["sender"] != "human.eve" || m["suppressed"] != nil || m["dead_letter"] != nil || m["attempts"] != nil {
			t.Errorf("%v", m)
		}
		for range 3 {
			a.Alert(bad, replay)
		}
		a.Alert(bad, stale)
		if got := took(); len(got) != 1 {
			t.Errorf("%d alerts within a second, want that of the other code", len(got))
		}
		time.Sleep(time.Second)
		a.Alert(bad, replay)
		if m := members(t, took()); m["suppressed"] != 3.0 {
			t.Errorf("suppressed: %v", m["suppressed"])
		}
		for attempts := range 2 { // a task that is refused has none
			a.AlertDead(bad, replay, "failed", attempts)
		}
		dead := took()
		if len(dead) != 2 {
			t.Fatalf("%d alerts about two dead letters", len(dead))
		}
		if m := members(t, dead[:1]); m["dead_letter"] != true || m["attempts"] != 0.0 || m["message"] != "failed" {
			t.Errorf("%v", m)
		}
	})
}

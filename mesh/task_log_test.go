package mesh_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// endings are the lines "task ended" of a JSON log, by task.
func endings(t *testing.T, log string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for line := range strings.Lines(log) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if v["msg"] != "task ended" {
			continue
		}
		id := v["id"].(string)
		if out[id] != nil {
			t.Errorf("a second line for %s: %s", id, line)
		}
		out[id] = v
	}
	return out
}

// Fault 9 of the operators' review: at level info each task that has ended has one
// line, with lane, duration, code and tokens, and without any payload.
func TestEachTaskHasOneLineInTheLog(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	var log syncBuffer
	node := r.lane(mesh.Config{TaskEvents: mesh.EventsFailures, Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))})
	w := r.serve(node, mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		task.SetUsage(json.RawMessage(`{"input_tokens":12,"output_tokens":3}`))
		if bytes.Contains(task.Envelope.Payload, []byte("fail")) {
			return nil, envelope.Errorf("E_OF_AN_AGENT", "confidential")
		}
		return json.RawMessage(`{"text":"confidential"}`), nil
	})})
	client := r.client()
	want := map[string]string{} // code by task
	lanes := map[string]string{}
	for _, lane := range []string{"live", "durable"} {
		for payload, code := range map[string]string{`{"text":"confidential"}`: "", `{"text":"confidential, fail"}`: "E_OF_AN_AGENT"} {
			task := newTask(reviewer, "code.review", payload)
			want[task.ID], lanes[task.ID] = code, lane
			if lane == "durable" {
				r.submit(client, task)
				r.result(client, task)
				continue
			}
			client.Send(ctxFor(t), task, mesh.SendOptions{})
		}
	}
	if _, err := client.Ask(ctxFor(t), reviewer, "confidential"); err != nil {
		t.Fatal(err)
	}
	r.ping(reviewer)
	eventually(t, "all tasks are in the log", func() bool { return len(endings(t, log.String())) == len(want)+1 })
	instance := node.Serving()[0].Instance
	for id, line := range endings(t, log.String()) {
		lane, code := lanes[id], want[id]
		if _, known := want[id]; !known {
			lane, code = "ask", ""
		}
		if line["lane"] != lane || line["instance"] != instance || line["entity"] != reviewer || line["duration_ms"].(float64) <= 0 || line["input_tokens"] != 12. || line["output_tokens"] != 3. || line["level"] != "INFO" {
			t.Errorf("%s: %v", lane, line)
		}
		if got, _ := line["code"].(string); got != code {
			t.Errorf("%s: code %q, want %q", lane, got, code)
		}
		if run, _ := line["run"].(string); (run != "") != (lane == "durable") {
			t.Errorf("%s: run %q", lane, run)
		}
	}
	if strings.Contains(log.String(), "confidential") {
		t.Errorf("a payload is in the log:\n%s", log.String())
	}
	if err := w.end(); err != nil {
		t.Error(err)
	}
}

// A process can tell what it serves, until it does not.
func TestANodeTellsWhatItServes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node := r.node(mesh.Config{})
	if got := node.Serving(); len(got) != 0 {
		t.Errorf("before: %+v", got)
	}
	gate := newGate(t)
	w := r.serve(node, mesh.Agent{Handler: gate, Health: func() mesh.Health { return mesh.Health{Status: "degraded"} }})
	r.serve(node, mesh.Agent{Entity: "agent.another", Handler: gate})
	got := node.Serving()
	if len(got) != 2 || got[0].Entity != "agent.another" || got[0].Health.Status != "healthy" || got[1].Entity != reviewer || got[1].Health.Status != "degraded" ||
		got[0].Instance == got[1].Instance || got[0].Started.IsZero() || got[0].Stopping {
		t.Errorf("%+v", got)
	}
	found, err := node.Discover(ctxFor(t), reviewer, time.Second)
	if err != nil || len(found) != 1 || found[0].Info.ID != got[1].Instance {
		t.Errorf("%v: %+v, want instance %s", err, found, got[1].Instance)
	}
	task := r.send(newTask(reviewer, "code.review", `{}`))
	within(t, "the handler", gate.entered)
	w.stop()
	eventually(t, "it is told that the agent stops", func() bool {
		now := node.Serving()
		return len(now) == 2 && now[1].Stopping
	})
	gate.open()
	within(t, "the answer", task)
	if err := w.end(); err != nil {
		t.Error(err)
	}
	if got := node.Serving(); len(got) != 1 || got[0].Entity != "agent.another" {
		t.Errorf("afterwards: %+v", got)
	}
}

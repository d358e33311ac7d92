package mesh_test

import (
	"bufio"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// received are the envelopes that a log tells of, by type and intent.
func received(t *testing.T, log *syncBuffer) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for lines := bufio.NewScanner(strings.NewReader(log.String())); lines.Scan(); {
		var line map[string]any
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line["msg"] == "envelope received" {
			out[line["type"].(string)+" "+line["intent"].(string)] = line
		}
	}
	return out
}

// AEE validity rule 8: consumers log id, corr, intent, from, to, type and
// priority, of what comes on every lane. What was said is not among them.
func TestConsumersLogTheFieldsOfRule8(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	served, sent := &syncBuffer{}, &syncBuffer{}
	logger := func(b *syncBuffer) *slog.Logger {
		return slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	r.serve(r.lane(mesh.Config{Logger: logger(served)}), mesh.Agent{Handler: mesh.HandlerFunc(streamFive)})
	client := r.lane(mesh.Config{Entity: "human.ada", Logger: logger(sent)})
	secret := json.RawMessage(`{"text":"top-secret"}`)
	live := envelope.New(envelope.TypeTask, "human.ada", reviewer, "test.live", secret)
	live.Priority = envelope.PriorityLow
	if _, err := client.Send(t.Context(), live, mesh.SendOptions{OnStream: func(*envelope.Envelope) error { return nil }}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Ask(t.Context(), reviewer, "top-secret"); err != nil {
		t.Fatal(err)
	}
	told := envelope.New(envelope.TypeEvent, "human.ada", reviewer, "test.event", secret)
	if err := client.Post(t.Context(), told); err != nil {
		t.Fatal(err)
	}
	stored := envelope.New(envelope.TypeTask, "human.ada", reviewer, "test.durable", secret)
	r.submit(client, stored)
	if _, err := r.result(client, stored); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the event is told", func() bool { return received(t, served)["event test.event"] != nil })

	at, back := received(t, served), received(t, sent)
	for name, want := range map[string]*envelope.Envelope{"task test.live": live, "task test.durable": stored, "event test.event": told} {
		for key, value := range map[string]string{"id": want.ID, "corr": want.Corr, "intent": want.Intent, "from": want.From, "to": want.To,
			"type": string(want.Type), "priority": string(want.Priority)} {
			if got := at[name][key]; got != value {
				t.Errorf("%s: the worker logs %s=%v, want %s", name, key, got, value)
			}
		}
	}
	if at["task agent.ask"] == nil {
		t.Error("plain text is not logged")
	}
	for _, name := range []string{"stream test.live", "result test.live", "result test.durable"} {
		if back[name] == nil {
			t.Errorf("the sender does not log %s", name)
		}
	}
	if strings.Contains(served.String()+sent.String(), "top-secret") {
		t.Error("a payload is in the log")
	}
}

// Rule 8 holds for what is refused, too: of an envelope that is not valid the fields that could be read.
func TestRefusedEnvelopesAreLoggedWithTheFieldsOfRule8(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	log := &syncBuffer{}
	r.serve(r.lane(mesh.Config{Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}), mesh.Agent{Handler: echo})
	const payload = `{"text":"top-secret"}`
	bad := func(intent string) (*envelope.Envelope, []byte) {
		e := newTask(reviewer, intent, payload)
		e.Priority = envelope.PriorityLow
		return e, []byte(strings.Replace(string(encode(t, e)), `"v":"1"`, `"v":"2"`, 1))
	}
	live, body := bad("test.live")
	if err := r.nc.Publish(reviewer, body); err != nil {
		t.Fatal(err)
	}
	stored, body := bad("test.stored")
	if _, err := r.js(r.nc).Publish(t.Context(), "aee.work.low."+reviewer, body); err != nil {
		t.Fatal(err)
	}
	command, body := bad("mesh.task.cancel")
	if err := r.nc.Publish("aee.ctl."+reviewer, body); err != nil {
		t.Fatal(err)
	}
	told := func(e *envelope.Envelope) (line map[string]any) {
		for lines := bufio.NewScanner(strings.NewReader(log.String())); lines.Scan(); {
			var l map[string]any
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				t.Fatal(err)
			}
			if l["id"] == e.ID && l["msg"] == "envelope refused" { // the durable lane has other lines of it
				line = l
			}
		}
		return line
	}
	for name, want := range map[string]*envelope.Envelope{"live": live, "durable": stored, "command": command} {
		eventually(t, name+" is told of", func() bool { return told(want) != nil })
		got := told(want)
		for key, value := range map[string]string{"corr": want.Corr, "intent": want.Intent, "from": want.From, "to": want.To,
			"type": string(want.Type), "priority": string(want.Priority), "code": string(envelope.CodeInvalidEnvelope)} {
			if got[key] != value {
				t.Errorf("%s: the worker logs %s=%v, want %s", name, key, got[key], value)
			}
		}
	}
	if strings.Contains(log.String(), "top-secret") {
		t.Error("a payload is in the log")
	}
}

// Who reads an inbox is a consumer, too: rule 8 holds for what is read there, and for what is refused.
func TestReadersOfInboxesLogTheFieldsOfRule8(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	log := &syncBuffer{}
	client := r.lane(mesh.Config{Entity: bob, Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	ask := func(intent string) *envelope.Envelope {
		e := newTask(bob, intent, `{"text":"top-secret"}`)
		e.Priority = envelope.PriorityLow
		return e
	}
	good, spoilt, stranger := ask("test.good"), ask("test.spoilt"), ask("test.stranger")
	stranger.To = cleo // and comes to bob
	for _, body := range [][]byte{encode(t, good), []byte(strings.Replace(string(encode(t, spoilt)), `"v":"1"`, `"v":"2"`, 1)), encode(t, stranger)} {
		if _, err := r.js(r.nc).Publish(t.Context(), bob, body); err != nil {
			t.Fatal(err)
		}
	}
	if asks, err := client.PersonTasks(ctxFor(t), bob); err != nil || len(asks) != 1 {
		t.Fatalf("%d tasks, %v", len(asks), err)
	}
	told := map[string]map[string]any{}
	for line := range strings.Lines(log.String()) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if id, ok := l["id"].(string); ok {
			told[id] = l
		}
	}
	for _, c := range []struct {
		env  *envelope.Envelope
		msg  string
		code envelope.Code
	}{{good, "envelope received", ""}, {spoilt, "envelope refused", envelope.CodeInvalidEnvelope}, {stranger, "envelope refused", envelope.CodeWrongRecipient}} {
		want := map[string]any{"msg": c.msg, "corr": c.env.Corr, "intent": c.env.Intent, "from": c.env.From, "to": c.env.To,
			"type": string(c.env.Type), "priority": string(c.env.Priority), "code": nil}
		if c.code != "" {
			want["code"] = string(c.code)
		}
		for key, value := range want {
			if got := told[c.env.ID][key]; got != value {
				t.Errorf("%s: %s=%v is logged, want %v", c.env.Intent, key, got, value)
			}
		}
	}
	if strings.Contains(log.String(), "top-secret") {
		t.Error("a payload is in the log")
	}
}

package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/natsd"
)

func TestResultAnswersTaskInItsOwnEncoding(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	for _, media := range []string{"", "application/json", "application/json; charset=utf-8", "application/vnd.aee+json", "text/plain", "application/cbor", "application/vnd.aee+cbor"} {
		task := newTask(reviewer, "code.review", `{"n":1,"text":"é\u0000"}`)
		task.Priority = envelope.PriorityHigh
		task.Trace = json.RawMessage(`{"trace_id":"9f3c","span_id":"b77c","x":1}`)
		header := nats.Header{}
		if media != "" {
			header.Set("Content-Type", media)
		}
		cbor := strings.HasSuffix(media, "cbor")
		body, wantType := encode(t, task), ""
		if cbor {
			var err error
			if body, err = task.AppendCBOR(nil); err != nil {
				t.Fatal(err)
			}
			wantType = "application/cbor"
		}
		answer := r.requestRaw(reviewer, body, header)
		equal(t, media+": content type", answer.Header.Get("Content-Type"), wantType)
		var got *envelope.Envelope
		var err error
		if cbor {
			got, err = envelope.ParseCBOR(answer.Data)
		} else {
			got, err = envelope.Parse(answer.Data)
		}
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, task.Reply(envelope.TypeResult, task.Payload))
	}
}

func TestErrorAnswersInTheTasksEncoding(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: failing(envelope.Errorf("E_MINE", "no luck"))})
	body, err := newTask(reviewer, "code.review", `{}`).AppendCBOR(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{"handler": body, "malformed": {0xff, 0x00}} {
		answer := r.requestRaw(reviewer, body, nats.Header{"Content-Type": {"application/cbor"}})
		if _, err := envelope.ParseCBOR(answer.Data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func failing(err error) mesh.Handler {
	return mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) { return nil, err })
}

func TestOneTerminalReplyAndNothingElseWithoutStream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		for range 5 {
			if err := task.EmitText("not asked for"); err != nil {
				return nil, err
			}
		}
		return json.RawMessage(`{"ok":true}`), nil
	})})
	task := newTask(reviewer, "code.review", `{}`)
	answers := r.send(task)
	same(t, parse(t, within(t, "the result", answers).Data), task.Reply(envelope.TypeResult, json.RawMessage(`{"ok":true}`)))
	r.ping(reviewer)
	empty(t, "after the result", answers)
}

func TestStreamIsNumberedThenTerminalThenEmpty(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		var in struct {
			Fail bool `json:"fail"`
		}
		json.Unmarshal(task.Envelope.Payload, &in)
		for _, payload := range []string{`{"text":"a"}`, `{}`, ` {"seq":99,"x":1.0}`, `{"seq":99}`} {
			if err := task.Emit(json.RawMessage(payload)); err != nil {
				return nil, err
			}
		}
		if err := task.Emit(json.RawMessage(`[]`)); err == nil {
			return nil, errors.New("an array was emitted")
		}
		if in.Fail {
			return nil, envelope.Errorf("E_MINE", "no luck")
		}
		return json.RawMessage(`{"done":true}`), nil
	})})
	for _, fail := range []bool{false, true} {
		task := requiring(newTask(reviewer, "code.review", fmt.Sprintf(`{"fail":%t}`, fail)), `{"stream":true}`)
		answers := r.send(task)
		for _, want := range []string{`{"seq":1,"text":"a"}`, `{"seq":2}`, `{"seq":3,"x":1.0}`, `{"seq":4}`} {
			same(t, parse(t, within(t, "a stream envelope", answers).Data), task.Reply(envelope.TypeStream, json.RawMessage(want)))
		}
		last := within(t, "the terminal envelope", answers)
		equal(t, "count header", last.Header.Get(headers.HeaderStreamCount), "4")
		want := task.Reply(envelope.TypeResult, json.RawMessage(`{"done":true}`))
		if fail {
			want = task.ReplyError(envelope.Errorf("E_MINE", "no luck"))
			equal(t, "code header", last.Header.Get("Nats-Service-Error-Code"), "E_MINE")
		}
		same(t, parse(t, last.Data), want)
		end := within(t, "the empty message", answers)
		equal(t, "the last message", [2]int{len(end.Data), len(end.Header)}, [2]int{0, 0})
		r.ping(reviewer)
		empty(t, "after the empty message", answers)
	}
}

// A stream payload that could not be sent must not leave a gap in the numbers.
func TestStreamNumbersHaveNoGapAfterFailedEmit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		if task.Emit(json.RawMessage(`{"n":1}`)) != nil {
			return nil, errors.New("emit")
		}
		if task.Emit(json.RawMessage(`{"text":"`+strings.Repeat("x", 2<<20)+`"}`)) == nil {
			return nil, errors.New("2 MiB were emitted")
		}
		if task.Emit(json.RawMessage(`{"n":2}`)) != nil {
			return nil, errors.New("emit")
		}
		return nil, nil
	})})
	answers := r.send(requiring(newTask(reviewer, "code.review", `{}`), `{"stream":true}`))
	var got []string
	for range 3 {
		got = append(got, string(parse(t, within(t, "an answer", answers).Data).Payload))
	}
	equal(t, "payloads", got, []string{`{"seq":1,"n":1}`, `{"seq":2,"n":2}`, `{}`})
}

func TestEmitAfterTheEndFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	late, begun := make(chan error, 1), make(chan struct{}, 1)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		begun <- struct{}{}
		<-ctx.Done()
		late <- task.EmitText("too late")
		return nil, ctx.Err()
	})})
	var answers chan *nats.Msg
	untilBegun(func(d time.Duration) bool {
		answers = r.send(requiring(newTask(reviewer, "code.review", `{}`), timeout(d, `,"stream":true`)))
		equal(t, "code", errorOf(t, parse(t, within(t, "the error", answers).Data)).Code, envelope.CodeTimeout)
		return len(begun) > 0
	})
	equal(t, "emit", codeOf(within(t, "emit", late)), envelope.CodeCancelled)
	within(t, "the empty message", answers)
	r.ping(reviewer)
	empty(t, "after the end", answers)
}

func TestErrorRepliesCarryServiceErrorHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	said := envelope.Errorf("E_MINE", "line one\nÜmläut\x00: %s", strings.Repeat("x", 400)).WithBackoff(1500 * time.Millisecond)
	said.EvidenceRefs = []string{"log:1"}
	said.Details = []envelope.Member{{Name: "hint", Value: json.RawMessage(`{"a":1}`)}}
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: failing(fmt.Errorf("while working: %w", said))})
	task := newTask(reviewer, "code.review", `{}`)
	answer := r.requestRaw(reviewer, encode(t, task), nil)
	same(t, parse(t, answer.Data), task.ReplyError(said))
	equal(t, "headers", answer.Header, nats.Header{
		"Nats-Service-Error":      {"line one " + "  ml  ut : " + strings.Repeat("x", 256-len("line one   ml  ut : "))},
		"Nats-Service-Error-Code": {"E_MINE"},
	})
}

func TestHiddenCausesAreNotTold(t *testing.T) {
	t.Parallel()
	secret := errors.New("dial postgres://root:hunter2@db: /etc/passwd")
	for name, h := range map[string]mesh.Handler{
		"plain error": failing(secret),
		"with a code": failing(envelope.Errorf("E_MINE", "no luck: %w", secret)),
		"panic":       mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) { panic(secret) }),
		"typed": mesh.Typed(func(_ context.Context, in struct {
			Secret1 *int `json:"n"`
		}) (struct{}, error) {
			return struct{}{}, secret
		}),
		"bad output": mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
			return json.RawMessage(`"hunter2"`), nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			bus := r.listen("bus.>")
			w := r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: h})
			for _, payload := range []string{`{}`, `{"n":"x"}`} {
				answer := r.requestRaw(reviewer, encode(t, newTask(reviewer, "code.review", payload)), nil)
				if errorOf(t, parse(t, answer.Data)); strings.Contains(string(answer.Data)+fmt.Sprint(answer.Header), "hunter2") {
					t.Errorf("told: %s %v", answer.Data, answer.Header)
				}
				// Nor the names of Go types.
				for _, word := range []string{"Secret1", "Go ", "struct", "unmarshal", "mesh."} {
					if strings.Contains(string(answer.Data), word) {
						t.Errorf("told %q: %s", word, answer.Data)
					}
				}
			}
			text := r.requestRaw("aee.ask."+reviewer, []byte("hello"), nil)
			if strings.Contains(string(text.Data)+fmt.Sprint(text.Header), "hunter2") {
				t.Errorf("told: %s %v", text.Data, text.Header)
			}
			if err := w.end(); err != nil {
				t.Fatal(err)
			}
			settle(t, r.nc)
			for _, msg := range drained(bus) {
				if strings.Contains(string(msg.Data), "hunter2") {
					t.Errorf("told the bus: %s", msg.Data)
				}
			}
		})
	}
}

func TestPanicIsInternalErrorAndTheWorkerLives(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	log := &syncBuffer{}
	r.serve(r.node(mesh.Config{Logger: textLogger(log)}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		switch string(task.Envelope.Payload) {
		case `{"do":"panic"}`:
			panic("boom")
		case `{"do":"nil"}`:
			var none *mesh.Task
			_ = none.Deadline
		case `{"do":"abort"}`:
			panic(http.ErrAbortHandler)
		}
		return nil, nil
	})})
	for range 3 {
		for _, do := range []string{"panic", "nil", "abort"} {
			e := errorOf(t, r.request(newTask(reviewer, "code.review", `{"do":"`+do+`"}`)))
			equal(t, do, *e, *envelope.ErrorOf(newTask(reviewer, "x.y", `{}`).ReplyError(errors.New(""))))
		}
	}
	task := newTask(reviewer, "code.review", `{"x":1}`)
	same(t, r.request(task), task.Reply(envelope.TypeResult, nil))
	if !strings.Contains(log.String(), "boom") || !strings.Contains(log.String(), "lane_test.go") {
		t.Errorf("the log has no panic with its stack:\n%s", log)
	}
}

func TestHandlerThatEndsItsGoroutineIsInternalErrorAndTheWorkerLives(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		if string(task.Envelope.Payload) == `{"do":"exit"}` {
			goexit()
		}
		return nil, nil
	})})
	for range 3 {
		equal(t, "code", errorOf(t, r.request(requiring(newTask(reviewer, "code.review", `{"do":"exit"}`), `{"timeout_ms":20000}`))).Code, envelope.CodeInternal)
		equal(t, "type", r.request(newTask(reviewer, "code.review", `{}`)).Type, envelope.TypeResult)
	}
}

// The deadline may have passed by the time a worker takes the task: nothing
// may race then (run with -race).
func TestOversizedResultIsAnError(t *testing.T) {
	t.Parallel()
	r := rigWith(t, natsd.Config{MaxPayload: 64 << 10})
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return json.RawMessage(`{"text":` + strconv.Quote(strings.Repeat("x", 70<<10)) + `}`), nil
	})})
	bus := r.listen("bus.mesh.task")
	e := errorOf(t, r.request(newTask(reviewer, "code.review", `{}`)))
	equal(t, "error", *e, *envelope.ErrorOf(newTask(reviewer, "x.y", `{}`).ReplyError(envelope.Errorf(envelope.CodeTooLarge, "the message is larger than the server's max_payload"))))
	within(t, "started", bus)
	equal(t, "event", parse(t, within(t, "failed", bus).Data).Intent, "mesh.task.failed")
}

func TestResultThatIsNoObjectIsTheAgentsFault(t *testing.T) {
	t.Parallel()
	for _, result := range []string{`[]`, `"x"`, `{"a":1,"a":2}`, `{`, "{\"a\":\"\xff\"}", strings.Repeat(`{"a":`, 500) + `1` + strings.Repeat(`}`, 500)} {
		r := newRig(t)
		var log syncBuffer
		r.serve(r.node(mesh.Config{Logger: textLogger(&log)}), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
			return json.RawMessage(result), nil
		})})
		equal(t, result[:min(20, len(result))], errorOf(t, r.request(newTask(reviewer, "code.review", `{}`))).Code, envelope.CodeOutputSchema)
		eventually(t, "the cause is in the log at level debug", func() bool { return strings.Contains(log.String(), `"task failed"`) })
	}
}

func TestTypedHandler(t *testing.T) {
	t.Parallel()
	type in struct {
		N    int      `json:"n"`
		List []string `json:"list"`
	}
	type out struct {
		Double int `json:"double"`
	}
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.Typed(func(_ context.Context, v in) (out, error) { return out{2 * v.N}, nil })})
	task := newTask(reviewer, "code.review", `{"n":21}`)
	same(t, r.request(task), task.Reply(envelope.TypeResult, json.RawMessage(`{"double":42}`)))
	for payload, want := range map[string]string{
		`{"n":"x"}`:        "the payload does not fit the agent's input: n cannot be a string",
		`{"n":1.5}`:        "the payload does not fit the agent's input: n cannot be number 1.5",
		`{"list":{"a":1}}`: "the payload does not fit the agent's input: list cannot be an object",
	} {
		task := newTask(reviewer, "code.review", payload)
		same(t, r.request(task), task.ReplyError(envelope.Errorf(envelope.CodeInputSchema, "%s", want)))
	}
}

func TestTaskWithoutReplySubjectFromAPersonLandsInTheInbox(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		if err := task.EmitText("x"); err != nil {
			return nil, err
		}
		if string(task.Envelope.Payload) == `{"fail":true}` {
			return nil, envelope.Errorf("E_MINE", "no luck")
		}
		return nil, nil
	})})
	inbox, all := r.listen("human.ada"), r.listen(">")
	for _, want := range []string{"result", "error"} {
		task := requiring(newTask(reviewer, "code.review", fmt.Sprintf(`{"fail":%t}`, want == "error")), `{"stream":true}`)
		r.nc.Publish(reviewer, encode(t, task))
		got := parse(t, within(t, "the answer", inbox).Data)
		if want == "result" {
			same(t, got, task.Reply(envelope.TypeResult, nil))
		} else {
			same(t, got, task.ReplyError(envelope.Errorf("E_MINE", "no luck")))
		}
	}
	// No other has an inbox.
	other := newTask(reviewer, "code.review", `{}`)
	other.From = "agent.other"
	r.nc.Publish(reviewer, encode(t, other))
	r.ping(reviewer)
	if err := w.end(); err != nil { // the handler has returned
		t.Fatal(err)
	}
	settle(t, r.nc)
	empty(t, "after the answers", inbox)
	for _, msg := range drained(all) {
		if msg.Subject == "agent.other" {
			t.Errorf("an agent's task without a reply subject was answered: %s", msg.Data)
		}
	}
}

func TestPrefixStandsInFrontOfEverything(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all := r.listen(">")
	node := r.node(mesh.Config{Prefix: "acme.eu"})
	w := r.serve(node, mesh.Agent{Handler: echo})
	reply, err := node.Send(t.Context(), newTask(reviewer, "code.review", `{"x":1}`), mesh.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "payload", string(reply.Payload), `{"x":1}`)
	if text, err := node.Ask(t.Context(), reviewer, "hi"); text != "hi" || err != nil {
		t.Errorf("ask: %q, %v", text, err)
	}
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	settle(t, r.nc)
	subjects := map[string]bool{}
	for _, msg := range drained(all) {
		if !strings.HasPrefix(msg.Subject, "_INBOX.") {
			subjects[msg.Subject] = true
		}
	}
	equal(t, "subjects", subjects, map[string]bool{
		"acme.eu.agent.reviewer": true, "acme.eu.aee.ask.agent.reviewer": true,
		"acme.eu.bus.mesh.agent": true, "acme.eu.bus.mesh.task": true,
	})
}

package sdsi_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

const photos = "agent.photo_desk"

// The desk in Python, which uses no library of ours, does what this mesh's client expects, and
// survives invalid input.
func TestThePhotoDesk(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not here: the photo desk needs it")
	}
	srv := natstest.Run(t, natsd.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	desk := exec.CommandContext(ctx, python, "python/photo_desk.py")
	desk.Env = append(os.Environ(), "NATS_URL="+srv.ClientURL(), "PYTHONDONTWRITEBYTECODE=1")
	var said strings.Builder
	desk.Stderr = &said
	if err := desk.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = desk.Process.Kill() // it has ended, or it ends now
		_ = desk.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	conn := natstest.Conn(t, srv)
	node, err := mesh.New(conn, mesh.Config{Entity: "human.ada", Heartbeat: -1})
	if err != nil {
		t.Fatal(err)
	}
	client := sdsi.NewClient(node)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err = client.Scenarios(ctx, photos); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-tick.C:
		}
	}

	tpl, err := client.Template(ctx, photos, "photo_retouch", "en-GB")
	if err != nil {
		t.Fatal(err)
	}
	if tpl.SchemaID != "photo_retouch_v2" || len(tpl.Keys) != 6 {
		t.Errorf("the template is %s, %d keys", tpl.SchemaID, len(tpl.Keys))
	}
	_, err = client.Template(ctx, photos, "flight_booking", "en")
	refused(t, err, envelope.CodeNotFound, "photo_retouch_v2")
	var list template.ListResult
	if _, err := node.Query(ctx, photos, intents.SchemaList, struct{}{}, &list); err != nil {
		t.Fatal(err)
	}
	reply, err := node.Query(ctx, photos, intents.SchemaGet, template.GetTask{IfHash: list.Scenarios[0].Hash}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := template.ParseGetResult(reply.Payload); err != nil || !got.NotModified {
		t.Errorf("not modified: %s, %v", reply.Payload, err)
	}

	spec, err := node.Query(ctx, photos, intents.SpecQuery, struct{}{}, nil)
	if err != nil || !strings.Contains(string(spec.Payload), intents.ExtSDSI) {
		t.Errorf("what it speaks: %v, %v", spec, err)
	}

	exchange := func(values string) (string, error) {
		got, err := client.Exchange(ctx, photos, template.Payload{SchemaID: "photo_retouch_v2", Payload: json.RawMessage(values)}, sdsi.ExchangeOptions{})
		if err != nil {
			return "", err
		}
		var result struct {
			Edits json.RawMessage `json:"edits"`
			Other json.RawMessage `json:"for_a_person"`
		}
		err = json.Unmarshal(got.Envelope.Payload, &result)
		return string(result.Edits) + " " + string(result.Other), err
	}
	for values, want := range map[string]string{
		`{}`:                                 `{} []`,
		`{"skin_smoothing":null}`:            `{} []`,
		`{"skin_smoothing":7.0}`:             `{"skin_smoothing": 7.0} []`,
		`{"other":["a","b"],"glow":true}`:    `{} ["a", "b", "glow: true"]`,
		`{"other":"a\u0007b\u200e"}`:         `{} ["a b "]`,
		`{"other":{"x":1}}`:                  `{} ["{\"x\": 1}"]`,
		`{"filter_style":"warm","other":""}`: `{"filter_style": "warm"} []`,
	} {
		if got, err := exchange(values); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", values, got, err, want)
		}
	}
	_, err = exchange(`{"skin_smoothing":true,"teeth_whitening":1,"filter_style":"sepia"}`)
	refused(t, err, envelope.CodeInputSchema, "skin_smoothing must be of type integer", "teeth_whitening must be of type boolean", "filter_style must be one of none, vintage")
	if strings.Contains(err.Error(), "sepia") {
		t.Errorf("the error repeats a value: %v", err)
	}

	for text, want := range map[string]string{
		`{"method":"get_schema_template","params":{"scenario":"photo_retouch"}}`: `"schema_id": "photo_retouch_v2"`,
		`{"schema_id":"photo_retouch_v2","payload":{"teeth_whitening":true}}`:    `"teeth_whitening": true`,
		`{"schema_id":"photo_retouch_v1","payload":{}}`:                          `error: E_NOT_FOUND`,
		"hello":                               `error: E_INTENT_UNKNOWN`,
		strings.Repeat("[", 100_000):          `error: E_`,
		`{"x":"` + strings.Repeat("ü", 1<<18): `error: E_`,
	} {
		msg, err := conn.RequestWithContext(ctx, "aee.ask."+photos, []byte(text))
		if err != nil || !strings.Contains(string(msg.Data), want) {
			t.Errorf("%.60s: %.200s, %v", text, msg.Data, err)
		}
	}
	// A reply subject that is not an inbox gets no answer.
	secret, err := conn.SubscribeSync("bus.secret.place")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.PublishMsg(&nats.Msg{Subject: photos, Reply: "bus.secret.place", Data: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{"id":7,"corr":[],"from":{}}`:                                                              `"E_INVALID_ENVELOPE"`,
		`{"v":"1","type":"task","to":"agent.other","intent":"x","payload":{}}`:                      `"E_WRONG_RECIPIENT"`,
		`{"v":"1","type":"result","to":"agent.photo_desk","intent":"x","payload":{}}`:               `"E_UNEXPECTED_TYPE"`,
		`{"v":"1","type":"task","to":"agent.photo_desk","intent":"aee.context.fetch","payload":{}}`: `"E_INTENT_RESERVED"`,
	} {
		msg, err := conn.RequestWithContext(ctx, photos, []byte(body))
		if err != nil || !strings.Contains(string(msg.Data), want) {
			t.Errorf("%s: %s, %v", body, msg.Data, err)
		}
	}
	if n, _, err := secret.Pending(); err != nil || n > 0 { // the desk answers in order
		t.Errorf("%d messages where none should be, %v", n, err)
	}
}

func refused(t *testing.T, err error, code envelope.Code, want ...string) {
	t.Helper()
	var e *envelope.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%v, want %s", err, code)
		return
	}
	for _, w := range want {
		if !strings.Contains(e.Message, w) {
			t.Errorf("%s: has no %q", e.Message, w)
		}
	}
}

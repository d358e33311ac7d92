package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

const desk = "agent.travel_desk"

// The program publishes its template and books on both lanes; equal values give the same booking,
// and invalid values do not reach it.
func TestTheDeskBooks(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	conn := natstest.Conn(t, srv)
	js, err := natsjs.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, srv.ClientURL(), ".") }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s := jetstream.Open(js, subject.Map{})
	node, err := mesh.New(conn, mesh.Config{Entity: "human.ada", Durable: &mesh.Durable{Queue: s.Queue, Replies: s.Replies, Dead: s.Dead, States: s.States, Clock: s.Clock}})
	if err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	exchange := func(values string, durable bool) (booking, error) {
		got, err := sdsi.NewClient(node).Exchange(within, desk, template.Payload{SchemaID: "flight_booking_v1", Payload: json.RawMessage(values)}, sdsi.ExchangeOptions{Durable: durable})
		if err != nil {
			return booking{}, err
		}
		var b booking
		return b, json.Unmarshal(got.Envelope.Payload, &b)
	}
	const values = `{"origin":"OSL","destination":"FCO","departure_date":"2031-05-05","passenger_count":2,"other":"a quiet row"}`
	want := booking{ID: "BK-9CA94242", Status: "confirmed", Flight: "OSL to FCO on 2031-05-05, economy", Passengers: 2, Requests: []string{"a quiet row"}}
	for _, durable := range []bool{true, false} { // a stored task waits for the desk
		got, err := exchange(values, durable)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := mustJSON(t, got), mustJSON(t, want); a != b {
			t.Errorf("durable %v: %s, want %s", durable, a, b)
		}
	}
	_, err = exchange(`{"origin":"","departure_date":"soon","passenger_count":12,"cabin_class":"roof"}`, false)
	refused(t, err, envelope.CodeInputSchema, "destination is missing", "origin has 0 characters", "departure_date is not a date", "passenger_count must be at most 9", "cabin_class")
	_, err = node.Send(within, envelope.New(envelope.TypeTask, "human.ada", desk, "agent.ask", json.RawMessage(`{"text":"hello"}`)), mesh.SendOptions{})
	refused(t, err, envelope.CodeInputSchema, "flight_booking")
	german, err := sdsi.NewClient(node).Template(within, desk, "", "de-CH")
	if err != nil || !strings.HasPrefix(german.Key("origin").Description, "Wo der Flug beginnt") {
		t.Errorf("in German: %v, %v", german, err)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
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

package sdsi_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/mesh"
)

// The cost of getting a template and of using it, compared with a task without a template and a
// NATS request.
func BenchmarkNegotiation(b *testing.B) {
	r := newRig(b, false)
	v := tram(b, "tram_v1")
	r.serve(r.desk(sdsi.DeskConfig{}, v), sells, nil)
	conn := r.conn()
	if _, err := conn.Subscribe("raw", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	payload := template.Payload{SchemaID: "tram_v1", Payload: json.RawMessage(`{"stop_from":"Museum","zone_count":2}`)}
	body, err := json.Marshal(payload)
	if err != nil {
		b.Fatal(err)
	}
	c := sdsi.NewClient(r.client)
	send := func(intent, payload string) error {
		_, err := r.client.Send(ctx, envelope.New(envelope.TypeTask, "human.ada", trams, intent, json.RawMessage(payload)), mesh.SendOptions{})
		return err
	}
	for name, do := range map[string]func() error{
		"raw":         func() error { _, err := r.client.Conn().RequestWithContext(ctx, "raw", body); return err },
		"task":        func() error { return send("tram.sell", `{"stop_from":"Museum","zone_count":2}`) },
		"exchange":    func() error { return send(intents.Exchange, string(body)) },
		"cached":      func() error { _, err := c.Template(ctx, trams, "tram_ticket", "de"); return err },
		"revalidated": func() error { return send(intents.SchemaGet, `{"scenario":"tram_ticket","if_hash":"`+v.Hash()+`"}`) },
		"uncached":    func() error { _, err := sdsi.NewClient(r.client).Template(ctx, trams, "tram_ticket", "de"); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The tokens that the agent's side spends on the two sentences of the draft: if it gets the
// sentence, its model must do the work of the client's model with a template.
func BenchmarkTokens(b *testing.B) {
	for _, x := range []struct{ file, sentence string }{
		{"../../examples/sdsi/travel-desk/flight_booking.sdsi.json", "Book me a flight from Beijing to Shanghai next Monday, business class, and I prefer a window seat."},
		{"../../examples/sdsi/python/photo_retouch.sdsi.json", "Please retouch this photo: smooth the skin, whiten teeth, make the background blurry, and add a vintage filter. Also, I want my eyes to look bigger."},
	} {
		raw, err := os.ReadFile(x.file)
		if err != nil {
			b.Fatal(err)
		}
		t, err := template.Parse(raw)
		if err != nil {
			b.Fatal(err)
		}
		form, err := template.NewForm(t, template.FormOptions{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(t.Scenario, func(b *testing.B) {
			var spent model.Usage
			filler := model.Func(func(ctx context.Context, req *model.Request, tell func(model.Delta) error) (*model.Response, error) {
				res, err := builtin.New().Generate(ctx, req, tell)
				if err == nil {
					spent.InputTokens += res.Usage.InputTokens
					spent.OutputTokens += res.Usage.OutputTokens
				}
				return res, err
			})
			n := 0
			for b.Loop() {
				n++
				m, err := template.Fill(context.Background(), sdsi.Filler{Model: filler, Name: builtin.Filler}, t, x.sentence, template.FillOptions{})
				if err != nil {
					b.Fatal(err)
				}
				_, _ = form.Check(m.Payload) // the agent's part; a date is missing without a clock
			}
			b.ReportMetric(float64(spent.InputTokens+spent.OutputTokens)/float64(n), "tokens/sentence")
			b.ReportMetric(0, "tokens/payload")
		})
	}
}

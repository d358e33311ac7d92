package mesh

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// fakeServer speaks just enough of the NATS protocol, over a pipe, to take
// what a connection publishes.
type fakeServer struct {
	published chan *nats.Msg
}

func (s *fakeServer) Dial(string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go s.serve(server)
	return client, nil
}

func (s *fakeServer) serve(c net.Conn) {
	defer c.Close()
	io.WriteString(c, `INFO {"server_id":"fuzz","version":"2.15.2","headers":true,"max_payload":1048576,"proto":1}`+"\r\n")
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "PING":
			if _, err := io.WriteString(c, "PONG\r\n"); err != nil {
				return
			}
		case fields[0] == "PUB" || fields[0] == "HPUB":
			size, _ := strconv.Atoi(fields[len(fields)-1])
			headers := 0
			if fields[0] == "HPUB" {
				headers, _ = strconv.Atoi(fields[len(fields)-2])
			}
			data := make([]byte, size+2)
			if _, err := io.ReadFull(in, data); err != nil {
				return
			}
			s.published <- &nats.Msg{Subject: fields[1], Data: data[headers:size], Header: nats.Header{"raw": {string(data[:headers])}}}
		}
	}
}

// FuzzIntake gives a worker any message at all. It must not panic, and must
// answer exactly once where there is a reply subject, with a valid envelope.
func FuzzIntake(f *testing.F) {
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.fuzz", "code.review", json.RawMessage(`{"text":"x"}`))
	seed, _ := task.AppendJSON(nil)
	inCBOR, _ := task.AppendCBOR(nil)
	f.Add(seed, "", "", "", true)
	f.Add(inCBOR, "application/cbor", "", "", true)
	f.Add([]byte("hello"), "text/plain", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "human.ada", true)
	for _, body := range []string{"", "{", "[]", `{"v":"1"}`, `{"stream":"X","seq":1}`} {
		f.Add([]byte(body), "application/json; x", "", "", false)
	}
	for _, intent := range []string{intents.StatusPing, intents.ContextFetch, intents.ContextRefute, intents.ValidatePayload, "aee.none", intents.TaskCancel} {
		e := envelope.New(envelope.TypeTask, "human.ada", "agent.fuzz", intent, json.RawMessage(`{"id":"x","reason":"y","intent":"code.review","payload_to_validate":{}}`))
		e.Requires = json.RawMessage(`{"stream":true,"timeout_ms":10}`)
		body, _ := e.AppendJSON(nil)
		f.Add(body, "", "", "", true)
	}
	server := &fakeServer{published: make(chan *nats.Msg, 1024)}
	conn, err := nats.Connect("nats://fuzz", nats.SetCustomDialer(server), nats.MaxReconnects(0))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(conn.Close)
	node, err := New(conn, Config{Heartbeat: -1, Skew: -1, ReplayWindow: -1, Quotas: Quotas{UnknownRate: -1, UrgentRate: -1}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, contentType, traceparent, from string, answer bool) {
		h, err := node.newHost(Agent{Entity: "agent.fuzz", Queue: 4, Handler: HandlerFunc(func(_ context.Context, task *Task) (json.RawMessage, error) {
			return task.Envelope.Payload, task.EmitText("x")
		})})
		if err != nil {
			t.Fatal(err)
		}
		header := nats.Header{}
		for name, value := range map[string]string{wire.HeaderContentType: contentType, wire.HeaderTraceParent: traceparent, wire.HeaderFrom: from} {
			if value != "" {
				header[name] = []string{value}
			}
		}
		h.staff.Do(func() {}) // the test does the work
		w := h.queue.Taker()
		lanes := []struct {
			name   string
			handle nats.MsgHandler
		}{{"task", h.intake.onTask}, {"ask", h.intake.onAsk}, {"ctl", h.controls.onControl}}
		for _, lane := range lanes {
			msg := &nats.Msg{Subject: h.live, Data: append([]byte(nil), body...), Header: header}
			if answer {
				msg.Reply = "reply"
			}
			lane.handle(msg)
			for _, crew := range []**sched.Crew{&h.verify, &h.control, &h.lookups} {
				(*crew).Close()
				*crew = sched.NewCrew(1, 64)
			}
			for h.queue.Len() > 0 {
				task, _ := h.queue.Take(w, true)
				h.run(task)
			}
			if err := conn.FlushTimeout(10 * time.Second); err != nil {
				t.Fatal(err)
			}
			terminal := 0
			for len(server.published) > 0 {
				out := <-server.published
				if out.Subject != "reply" {
					continue
				}
				switch {
				case lane.name == "ask":
					terminal++
				case len(out.Data) == 0: // the end of a stream
				default:
					e, err := envelope.Parse(out.Data)
					if strings.Contains(out.Header["raw"][0], "Content-Type: "+envelope.ContentCBOR) {
						e, err = envelope.ParseCBOR(out.Data)
					}
					if err != nil {
						t.Fatalf("%s answered %q: %v", lane.name, out.Data, err)
					}
					if e.Type.Terminal() {
						terminal++
					}
				}
			}
			if lane.name == "ctl" && terminal > 1 || lane.name != "ctl" && (terminal == 1) != answer {
				t.Errorf("%s: %d terminal answers", lane.name, terminal)
			}
		}
		h.running.Stop()
	})
}

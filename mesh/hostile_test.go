package mesh_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// hostile makes bodies that are no acceptable task, of many kinds.
type hostile struct {
	rnd *rand.Rand
	t   *testing.T
}

type body struct {
	kind   string
	data   []byte
	header nats.Header
}

func (h *hostile) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(h.rnd.Uint32())
	}
	return b
}

var cborHeader = nats.Header{"Content-Type": {"application/cbor"}}

// valid is a task that would be accepted.
func (h *hostile) valid() *envelope.Envelope {
	return newTask(reviewer, "code.review", `{"text":"x"}`)
}

// broken is the JSON of a valid task with one member changed.
func (h *hostile) broken(name string, value string) []byte {
	var members map[string]json.RawMessage
	json.Unmarshal(encode(h.t, h.valid()), &members)
	if value == "" {
		delete(members, name)
	} else {
		members[name] = json.RawMessage(value)
	}
	b, _ := json.Marshal(members)
	return b
}

func (h *hostile) make(i int) body {
	names := []string{"v", "id", "ts", "type", "from", "to", "intent", "corr", "priority", "payload"}
	name := names[h.rnd.IntN(len(names))]
	values := []string{"", "null", "1", `""`, "[]", "true", `"\u00e9"`, `"éé"`, `"ééé"`, `"éééé"`, `"x"`, "-1.5e300"}
	value := values[h.rnd.IntN(len(values))]
	switch i % 22 {
	case 0:
		return body{"random bytes", h.bytes(h.rnd.IntN(300)), nil}
	case 1:
		return body{"random bytes as cbor", h.bytes(h.rnd.IntN(300)), cborHeader}
	case 2:
		data := encode(h.t, h.valid())
		return body{"cut", data[:h.rnd.IntN(len(data))], nil}
	case 3:
		data := encode(h.t, h.valid())
		data[h.rnd.IntN(len(data))] ^= 0x80 // never valid UTF-8
		return body{"flipped bit", data, nil}
	case 4:
		data, err := h.valid().AppendCBOR(nil)
		if err != nil {
			h.t.Fatal(err)
		}
		return body{"cut cbor", data[:h.rnd.IntN(len(data))], cborHeader}
	case 5:
		if name == "type" && value == `"x"` || value == `"éééé"` || (name == "from" || name == "to" || name == "intent") && len(value) > 3 {
			value = ""
		}
		if (name == "from" || name == "to") && value == `"x"` {
			value = ""
		}
		return body{"member " + name + " " + value, h.broken(name, value), nil}
	case 6:
		return body{"deep", []byte(strings.Replace(string(h.broken("payload", `{"a":"@"}`)), `"@"`, strings.Repeat("[", 5000)+strings.Repeat("]", 5000), 1)), nil}
	case 7:
		return body{"deep cbor", append([]byte(strings.Repeat("\x81", 5000)), 0), cborHeader}
	case 8:
		return body{"wrong content type", encode(h.t, h.valid()), nats.Header{"Content-Type": {[]string{"application/xml", "x", "image/png; q=1", "/", ";;", strings.Repeat("y", 3000)}[h.rnd.IntN(6)]}}}
	case 9:
		return body{"oversized", h.broken("payload", `{"text":"`+strings.Repeat("x", 20<<10)+`"}`), nil}
	case 10:
		return body{"duplicate name", []byte(strings.Replace(string(encode(h.t, h.valid())), `{"v":"1"`, `{"v":"1","v":"1"`, 1)), nil}
	case 11:
		return body{"duplicate name in the payload", h.broken("payload", `{"a":1,"a":2}`), nil}
	case 12:
		return body{"log record", []byte(`{"v":"1","id":"01JFB2R1JZKQ9V3K8W8Y9W1F2A","type":"task","from":"human.ada","intent":"code.review"}`), nil}
	case 13:
		return body{"empty", nil, []nats.Header{nil, cborHeader}[h.rnd.IntN(2)]}
	case 14:
		return body{"another document", []byte([]string{`[]`, `"x"`, `null`, `0`, `{}`, `{"stream":"X","seq":1}`, "<a/>", "hello", "\x00"}[h.rnd.IntN(9)]), nil}
	case 15:
		return body{"two documents", append(encode(h.t, h.valid()), encode(h.t, h.valid())...), nil}
	case 16:
		return body{"cbor under json", append([]byte{0xa1, 0x61, 'v', 0x61}, '1'), nil}
	case 17:
		return body{"json under cbor", encode(h.t, h.valid()), cborHeader}
	case 18:
		return body{"integer keys", []byte{0xa1, 0x01, 0x02}, cborHeader}
	case 19:
		return body{"long members", h.broken(name, fmt.Sprintf("%q", strings.Repeat("é", 2000+h.rnd.IntN(2000)))), nil}
	case 20:
		return body{"surrogate", h.broken("from", `"\ud800"`), nil}
	default:
		e := h.valid()
		switch h.rnd.IntN(4) {
		case 0:
			e.To = "agent.other"
		case 1:
			e.TS = "2001-01-01T00:00:00Z"
		case 2:
			e.Intent = "aee.no.such"
			return body{"reserved intent", encode(h.t, e), nil}
		default:
			e.Type = envelope.TypeStream
		}
		return body{"valid but refused", encode(h.t, e), nil}
	}
}

func TestTenThousandHostileBodiesAreAnsweredOnceOrDropped(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := rigWith(t, natsd.Config{MaxPayload: 64 << 10})
	ran := newGate(t)
	ran.open()
	r.serve(r.node(mesh.Config{Limits: envelope.Limits{MaxBytes: 16 << 10}, Quotas: mesh.Quotas{UnknownRate: -1}}), mesh.Agent{Handler: ran})
	h := &hostile{rand.New(rand.NewPCG(1, 2)), t}
	const bodies = 10_000
	inbox := r.nc.NewInbox()
	answers := r.listen(inbox + ".*")
	kinds := make([]string, bodies)
	asked := 0
	dropped := 0
	for i := range bodies {
		b := h.make(i)
		kinds[i] = b.kind
		msg := &nats.Msg{Subject: reviewer, Data: b.data, Header: b.header}
		if h.rnd.IntN(5) > 0 {
			msg.Reply = fmt.Sprintf("%s.%d", inbox, i)
			asked++
		} else if b.kind != "reserved intent" { // that one is a task that fails
			dropped++
		}
		if err := r.nc.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	r.ping(reviewer)
	eventually(t, "CBOR is decoded, beside the rest", func() bool { return len(answers) >= asked && r.counters(reviewer)["dropped"] >= dropped })
	settle(t, r.nc)
	count := map[string]int{}
	for _, msg := range drained(answers) {
		count[msg.Subject]++
		i := 0
		fmt.Sscanf(strings.TrimPrefix(msg.Subject, inbox+"."), "%d", &i)
		var e *envelope.Envelope
		var err error
		if msg.Header.Get("Content-Type") == "application/cbor" {
			e, err = envelope.ParseCBOR(msg.Data)
		} else {
			e, err = envelope.Parse(msg.Data)
		}
		if err != nil {
			t.Errorf("%s: the answer is no envelope: %v", kinds[i], err)
			continue
		}
		problem := errorOf(t, e)
		if !problem.Code.Known() || problem.Code == envelope.CodeInternal || problem.Code == envelope.CodeOutputSchema {
			t.Errorf("%s: %v", kinds[i], problem)
		}
		if len(msg.Data) > 4096 {
			t.Errorf("%s: an answer of %d bytes", kinds[i], len(msg.Data))
		}
	}
	for subject, n := range count {
		if n != 1 {
			t.Errorf("%s: %d answers", subject, n)
		}
	}
	if len(count) != asked {
		missing := map[string]int{}
		for i, kind := range kinds {
			if count[fmt.Sprintf("%s.%d", inbox, i)] == 0 {
				missing[kind]++
			}
		}
		t.Errorf("%d of %d were answered; of all that were not: %v", len(count), asked, missing)
	}
	select {
	case task := <-ran.entered:
		t.Errorf("a hostile body ran: %+v", task.Envelope)
	default:
	}
	// Everything is counted, and the agent works.
	stats := r.counters(reviewer)
	equal(t, "dropped", stats["dropped"], dropped)
	if all := stats["malformed"] + stats["refused"] + stats["unexpected"]; all < bodies*9/10 {
		t.Errorf("of %d bodies %d are counted: %v", bodies, all, stats)
	}
	task := newTask(reviewer, "code.review", `{"still":"here"}`)
	same(t, r.request(task), task.Reply(envelope.TypeResult, task.Payload))
}

// counters are the mesh's own numbers in an agent's NATS micro stats.
func (r *rig) counters(entity string) map[string]int {
	r.t.Helper()
	name := strings.ReplaceAll(entity, ".", "-")
	var stats micro.Stats
	if err := json.Unmarshal(r.requestRaw("$SRV.STATS."+name, nil, nil).Data, &stats); err != nil {
		r.t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(stats.Endpoints[0].Data, &all); err != nil {
		r.t.Fatal(err)
	}
	out := map[string]int{}
	for name, n := range all {
		if n, ok := n.(float64); ok { // not the agent's status
			out[name] = int(n)
		}
	}
	return out
}

// The answer must be addressed to the sender, as far as it could be read.
func TestAnswerToBrokenEnvelopeNamesWhatCouldBeRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{}`)
	body := strings.Replace(string(encode(t, task)), `"priority":"normal"`, `"priority":"soon"`, 1)
	want := task.ReplyError(envelope.Errorf(envelope.CodeInvalidEnvelope, `priority must be low, normal, high or urgent, not "soon" (AEE validity rule 6)`))
	same(t, parse(t, r.requestRaw(reviewer, []byte(body), nil).Data), want)

	// Lengths are counted in characters.
	for _, short := range []string{"é1é1", "ééééééé"} {
		body := strings.Replace(string(encode(t, task)), `"id":"`+task.ID, `"id":"`+short, 1)
		got := parse(t, r.requestRaw(reviewer, []byte(body), nil).Data)
		equal(t, "reply_to", got.ReplyTo, "00000000000000000000000000")
		equal(t, "corr", got.Corr, task.Corr)
	}
}

// Who sends text, or a payload alone, is told which subject takes that.
func TestAnswerToWhatIsNoEnvelopeNamesTheSubjectOfText(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	for body, why := range map[string]string{
		"hello, mesh":   `there is no JSON object at byte 0`,
		`{"path": "."}`: `v is missing`,
	} {
		got := errorOf(t, parse(t, r.requestRaw(reviewer, []byte(body), nil).Data))
		equal(t, "code", got.Code, envelope.CodeInvalidEnvelope)
		if want := "this is no envelope (text goes to aee.ask.agent.reviewer): " + why; !strings.HasPrefix(got.Message, want) {
			t.Errorf("%s: %s, want %s", body, got.Message, want)
		}
	}
}

// Its receiver would refuse it under another corr or id, and the sender would refuse that
// answer, or wait for it in vain.
func TestASenderSendsNoFieldThatIsTooLong(t *testing.T) {
	t.Parallel()
	client := newRig(t).node(mesh.Config{Entity: ada})
	task := newTask(reviewer, "code.review", `{}`)
	task.From, task.Corr = ada, strings.Repeat("x", 1025)
	_, err := client.Send(ctxFor(t), task, mesh.SendOptions{})
	if codeOf(err) != envelope.CodeTooLarge || !strings.Contains(err.Error(), "corr has more than 1024 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestFieldsThatNameThingsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	long := strings.Repeat("x", 1025)
	for name, change := range map[string]func(*envelope.Envelope){
		"id":     func(e *envelope.Envelope) { e.ID = long },
		"from":   func(e *envelope.Envelope) { e.From = "agent." + long },
		"intent": func(e *envelope.Envelope) { e.Intent = "code." + long },
		"corr":   func(e *envelope.Envelope) { e.Corr = long },
	} {
		task := newTask(reviewer, "code.review", `{}`)
		change(task)
		got := r.request(task)
		equal(t, name, *errorOf(t, got), *envelope.ErrorOf(task.ReplyError(envelope.Errorf(envelope.CodeTooLarge, "%s has more than 1024 bytes", name))))
		if n := len(encode(t, got)); n > 4096 {
			t.Errorf("%s: an answer of %d bytes", name, n)
		}
	}
	task := newTask(reviewer, "code.review", `{}`)
	task.ID, task.Corr = strings.Repeat("x", 1024), strings.Repeat("y", 1024)
	same(t, r.request(task), task.Reply(envelope.TypeResult, nil))
}

func TestWrongRecipientAndUnexpectedTypesNeverLoop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const other = "agent.other"
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: other, Handler: echo})
	seen := r.listen(">")
	wrong := newTask(other, "code.review", `{}`)
	same(t, parse(t, r.requestRaw(reviewer, encode(t, wrong), nil).Data), func() *envelope.Envelope {
		e := wrong.ReplyError(envelope.Errorf(envelope.CodeWrongRecipient, "this is agent.reviewer; the envelope is addressed to another entity"))
		e.From = reviewer
		return e
	}())
	for _, typ := range []envelope.Type{envelope.TypeResult, envelope.TypeError, envelope.TypeStream, envelope.TypeEvent} {
		e := newTask(reviewer, "code.review", `{}`)
		e.Type, e.ReplyTo = typ, envelope.NewID()
		equal(t, string(typ), errorOf(t, r.request(e)).Code, envelope.CodeUnexpectedType)
	}
	// Now the reply subjects are agents' own lanes.
	drained(seen)
	lanes := []string{reviewer, other, "aee.ask." + reviewer, "aee.ask." + other, "aee.ctl." + reviewer, "$SRV.PING", "$SRV.STATS." + "agent-other"}
	bodies := [][]byte{nil, []byte("{"), encode(t, wrong), encode(t, newTask(reviewer, "code.review", `{}`)), encode(t, requiring(newTask(reviewer, "code.review", `{}`), `{"stream":true}`))}
	sent := 0
	for _, to := range lanes {
		for _, reply := range lanes {
			for _, body := range bodies {
				r.nc.PublishRequest(to, reply, body)
				sent++
			}
		}
	}
	for range 3 {
		r.ping(reviewer)
		r.ping(other)
	}
	settle(t, r.nc)
	// Each was answered once or twice at most, and no answer by another.
	if n := len(drained(seen)); n > 6*sent {
		t.Errorf("%d messages sent, %d seen", sent, n)
	}
	before := r.srvMessages()
	r.ping(reviewer)
	r.ping(other)
	if n := r.srvMessages() - before; n > 100 {
		t.Errorf("%d messages go on", n)
	}
}

// srvMessages is how many messages this client has seen of all.
func (r *rig) srvMessages() uint64 { return r.nc.Stats().InMsgs }

func TestNestedLiveEnvelopeIsNeverRouted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	victim := newGate(t)
	victim.open()
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.victim", Handler: victim})
	inner := encode(t, newTask("agent.victim", "code.review", `{}`))
	for _, payload := range []string{string(inner), `{"envelope":` + string(inner) + `}`, `{"archive":[` + string(inner) + `]}`} {
		task := newTask(reviewer, "code.review", payload)
		same(t, r.request(task), task.Reply(envelope.TypeResult, task.Payload))
	}
	equal(t, "an envelope for a reference", errorOf(t, r.request(newTask(reviewer, "code.review", `{"references":[`+string(inner)+`]}`))).Code, envelope.CodeInputSchema)
	var found intents.FetchResult
	task := newTask(reviewer, "code.review", `{"envelope":`+string(inner)+`}`)
	r.request(task)
	fetch := r.request(newTask(reviewer, intents.ContextFetch, fmt.Sprintf(`{"id":%q}`, task.ID)))
	if json.Unmarshal(fetch.Payload, &found) != nil || !found.Found {
		t.Fatalf("fetch: %s", fetch.Payload)
	}
	r.ping("agent.victim")
	select {
	case task := <-victim.entered:
		t.Errorf("the inner envelope was routed: %+v", task.Envelope)
	default:
	}
}

package envelope_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

func ExampleParse() {
	e, err := envelope.Parse([]byte(`{"v":"1","id":"01JFB2R1JZKQ9V3K8W8Y9W1F2A","ts":"2025-12-14T03:45:12Z",
		"type":"task","from":"human.ada","to":"agent.reviewer","intent":"code.review",
		"corr":"01JFB2QX0K8X5K6ZJ9G2C0C1MW","priority":"high","requires":{"timeout_ms":30000},
		"payload":{"path":"main.go"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := e.Requirements()
	fmt.Println(e.From, "asks", e.To, "for", e.Intent, "within", r.Timeout, err)
	// Output: human.ada asks agent.reviewer for code.review within 30s <nil>
}

// The error for an invalid envelope lists everything that is wrong with it.
func ExampleParse_invalid() {
	_, err := envelope.Parse([]byte(`{"v":"1","id":"01JFB2R1JZKQ9V3K8W8Y9W1F2A","ts":"2025-12-14T03:45:12Z","type":"result",
		"from":"agent.reviewer","to":"","intent":"code.review","corr":"01JFB2QX0K8X5K6ZJ9G2C0C1MW","priority":"asap","payload":[]}`))
	var invalid *envelope.InvalidError
	if errors.As(err, &invalid) {
		for _, p := range invalid.Problems {
			fmt.Println(p)
		}
	}
	// Output:
	// to must have at least 1 character (AEE, Envelope Fields)
	// reply_to must be the id of the task that the result answers, at least 8 characters (AEE validity rule 3)
	// priority must be low, normal, high or urgent, not "asap" (AEE validity rule 6)
	// payload must be a JSON object (AEE validity rule 4)
}

func ExampleEnvelope_Reply() {
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.reviewer", "code.review", json.RawMessage(`{"path":"main.go"}`))
	result := task.Reply(envelope.TypeResult, json.RawMessage(`{"findings":[]}`))
	fmt.Println(result.Type, "from", result.From, "to", result.To)
	fmt.Println(result.ReplyTo == task.ID, result.Corr == task.Corr)
	// Output:
	// result from agent.reviewer to human.ada
	// true true
}

func ExampleErrorf() {
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.reviewer", "code.review", nil)
	err := envelope.Errorf(envelope.CodeTool, "the linter did not start: %w", errors.New("fork/exec /opt/lint: permission denied"))
	fmt.Println(err)
	fmt.Println(string(task.ReplyError(err).Payload))
	// Output:
	// E_TOOL: the linter did not start: fork/exec /opt/lint: permission denied
	// {"code":"E_TOOL","message":"the linter did not start","retryable":false}
}

func ExampleCanonical() {
	text, err := envelope.Canonical(json.RawMessage(`{ "b": 1.0, "a": [1e2, "\u00e9"] }`))
	fmt.Println(string(text), err)
	// Output: {"a":[100,"é"],"b":1} <nil>
}

// TestUnknownMembersSurvive checks rules 7 and 10: unknown members are ignored, and are
// encoded again byte for byte, in order.
func TestUnknownMembersSurvive(t *testing.T) {
	t.Parallel()
	const requires = `{"timeout_ms":1500.0, "x_budget" : {"eur":0.10 , "b":[ ] }, "\u0061":-0}`
	const extra = `"x_b": {"n" : 1.50, "s":"\u00e9"}`
	text := strings.Replace(draftTask, `{"timeout_ms":30000,"evidence":true,"human_approval":false}`, requires, 1)
	text = strings.Replace(text, `"sig":null}`, `"sig":null,`+extra+`,"x_a":null}`, 1)
	e := mustParse(t, text)
	if string(e.Requires) != requires {
		t.Errorf("requires: %s", e.Requires)
	}
	want := []envelope.Member{{Name: "x_b", Value: json.RawMessage(`{"n" : 1.50, "s":"\u00e9"}`)}, {Name: "x_a", Value: json.RawMessage("null")}}
	if !reflect.DeepEqual(e.Extra, want) {
		t.Errorf("extra: %+v", e.Extra)
	}
	out, err := e.AppendJSON([]byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(out); got != "before"+strings.Replace(text, `"x_b": {`, `"x_b":{`, 1) {
		t.Errorf("got  %s\nwant %s", got, text)
	}
	if r, err := e.Requirements(); err != nil || r.Timeout != 1500*time.Millisecond {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	deep := strings.Replace(draftTask, `"24h"`, strings.Repeat("[", 10)+strings.Repeat("]", 10), 1)
	for _, tt := range []struct {
		name  string
		text  string
		l     envelope.Limits
		large bool
		ok    bool
	}{
		{"defaults", draftTask, envelope.Limits{}, false, true},
		{"bytes, just", draftTask, envelope.Limits{MaxBytes: len(draftTask)}, false, true},
		{"bytes", draftTask, envelope.Limits{MaxBytes: len(draftTask) - 1}, true, false},
		{"depth, just", deep, envelope.Limits{MaxDepth: 12}, false, true},
		{"depth", deep, envelope.Limits{MaxDepth: 11}, false, false},
		{"depth of the envelope", draftTask, envelope.Limits{MaxDepth: 1}, false, false},
		{"a mebibyte", strings.Replace(draftTask, "24h", strings.Repeat("x", 1<<20), 1), envelope.Limits{}, true, false},
		{"the hard bound of depth", strings.Replace(draftTask, `"24h"`, strings.Repeat("[", 2000)+strings.Repeat("]", 2000), 1), envelope.Limits{MaxDepth: 1 << 20}, false, false},
	} {
		_, err := envelope.ParseLimits([]byte(tt.text), tt.l)
		if (err == nil) != tt.ok || errors.Is(err, envelope.ErrTooLarge) != tt.large {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := envelope.ParseLog([]byte(strings.Repeat(" ", 1<<20+1))); !errors.Is(err, envelope.ErrTooLarge) {
		t.Errorf("ParseLog: %v", err)
	}
}

func TestNewAndReply(t *testing.T) {
	t.Parallel()
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "test.it", nil)
	task.Corr = envelope.NewID() // of an earlier task
	task.Priority = envelope.PriorityUrgent
	task.Requires = json.RawMessage(`{"stream":true}`)
	task.SetTraceContext(envelope.TraceContext{TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", SpanID: "00f067aa0ba902b7"})
	task.Sig = json.RawMessage(`"s"`)
	task.Extra = []envelope.Member{{Name: "x", Value: json.RawMessage("1")}}
	if err := task.Validate(); err != nil {
		t.Fatal(err)
	}
	if tc, ok := task.TraceContext(); !ok || tc.TraceID != "4bf92f3577b34da6a3ce929d0e0e4736" || tc.SpanID != "00f067aa0ba902b7" {
		t.Errorf("trace context %+v, %t", tc, ok)
	}
	for _, kind := range []envelope.Type{envelope.TypeStream, envelope.TypeResult, envelope.TypeError} {
		r := task.Reply(kind, nil)
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
		want := &envelope.Envelope{
			V: "1", ID: r.ID, TS: r.TS, Type: kind, From: "agent.x", To: "human.ada", Intent: "test.it", Corr: task.Corr, ReplyTo: task.ID,
			Trace: task.Trace, Priority: envelope.PriorityUrgent, Payload: json.RawMessage("{}"),
		}
		if !reflect.DeepEqual(r, want) || r.ID == task.ID {
			t.Errorf("got %+v, want %+v", r, want)
		}
	}
	c := task.Clone()
	c.ID, c.Extra[0].Name = "another-id", "y"
	if task.ID == c.ID || task.Extra[0].Name != "x" {
		t.Error("a change to the clone changed the original")
	}
}

// TestValidateFindsWhatWasBuiltWrong: envelopes that a program builds are validated
// before they are encoded.
func TestValidateFindsWhatWasBuiltWrong(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*envelope.Envelope){
		"zero":                  func(e *envelope.Envelope) { *e = envelope.Envelope{} },
		"invalid UTF-8":         func(e *envelope.Envelope) { e.From = "agent.\xff" },
		"payload is no JSON":    func(e *envelope.Envelope) { e.Payload = json.RawMessage(`{"a":`) },
		"two values in payload": func(e *envelope.Envelope) { e.Payload = json.RawMessage(`{},"x":{}`) },
		"no payload":            func(e *envelope.Envelope) { e.Payload = nil },
		"duplicate in requires": func(e *envelope.Envelope) { e.Requires = json.RawMessage(`{"a":1,"a":2}`) },
		"empty requires":        func(e *envelope.Envelope) { e.Requires = json.RawMessage{} },
		"field among the extra": func(e *envelope.Envelope) { e.Extra = []envelope.Member{{Name: "id", Value: json.RawMessage("1")}} },
		"extra without value":   func(e *envelope.Envelope) { e.Extra = []envelope.Member{{Name: "x"}} },
		"extra twice": func(e *envelope.Envelope) {
			m := envelope.Member{Name: "x", Value: json.RawMessage("1")}
			e.Extra = []envelope.Member{m, m}
		},
		"extra invalid UTF-8": func(e *envelope.Envelope) { e.Extra = []envelope.Member{{Name: "\xff", Value: json.RawMessage("1")}} },
		"result without task": func(e *envelope.Envelope) { e.Type = envelope.TypeResult },
		"sig is a number":     func(e *envelope.Envelope) { e.Sig = json.RawMessage("1") },
		"too deep": func(e *envelope.Envelope) {
			e.Payload = json.RawMessage(strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64))
		},
	} {
		e := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "test.it", nil)
		change(e)
		var invalid *envelope.InvalidError
		for _, f := range []func([]byte) ([]byte, error){e.AppendJSON, e.AppendCBOR} {
			if out, err := f([]byte("before")); !errors.As(err, &invalid) || string(out) != "before" {
				t.Errorf("%s: %q, %v", name, out, err)
			}
		}
		if _, err := e.Hash(); !errors.As(err, &invalid) {
			t.Errorf("%s: hash: %v", name, err)
		}
	}
}

func TestWithEncodingJSON(t *testing.T) {
	t.Parallel()
	e := mustParse(t, draftTask)
	data, err := json.Marshal(map[string]any{"e": e})
	if err != nil {
		t.Fatal(err)
	}
	var back struct{ E *envelope.Envelope }
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back.E, e) {
		t.Errorf("got %+v, want %+v", back.E, e)
	}
	if err := json.Unmarshal([]byte(`{"e":{"v":"1"}}`), &back); err == nil {
		t.Error("an invalid envelope was accepted")
	}
}

// TestParsedEnvelopesDoNotShareState: a parsed envelope does not change when other calls
// use the pools.
func TestParsedEnvelopesDoNotShareState(t *testing.T) {
	t.Parallel()
	first := mustParse(t, draftTask)
	want, err := first.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		mustParse(t, strings.Replace(draftTask, `"sig":null`, `"sig":null,"x":{"z":1,"y":2}`, 1))
		if _, err := envelope.Canonical(json.RawMessage(`{"z":{"y":1,"x":"\u0061"},"a":[{"c":1,"b":2}]}`)); err != nil {
			t.Fatal(err)
		}
		envelope.Parse([]byte(`{"a":{"b":{"c":`))
	}
	got, err := first.AppendJSON(nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %s (%v), want %s", got, err, want)
	}
}

func TestRequirements(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		requires string
		want     envelope.Requirements
		fault    string // in the message; "" for none
	}{
		{`null`, envelope.Requirements{}, ""},
		{`{}`, envelope.Requirements{}, ""},
		{`{"timeout_ms":30000,"evidence":true,"human_approval":false}`, envelope.Requirements{Timeout: 30 * time.Second, Evidence: true}, ""},
		{`{"timeout_ms":0.5}`, envelope.Requirements{Timeout: time.Millisecond}, ""},
		{`{"timeout_ms":1500.0}`, envelope.Requirements{Timeout: 1500 * time.Millisecond}, ""},
		{`{"timeout_ms":1e300}`, envelope.Requirements{Timeout: 9223372036854 * time.Millisecond}, ""},
		{`{"timeout_ms":null,"stream":null,"format":null,"min_confidence":null,"decision_evidence":null}`, envelope.Requirements{}, ""},
		{`{"human_approval":true,"stream":true,"format":"json","min_confidence":0.90,"decision_evidence":"full"}`,
			envelope.Requirements{HumanApproval: true, Stream: true, Format: "json", MinConfidence: 0.9, HasMinConfidence: true, DecisionEvidence: envelope.EvidenceFull}, ""},
		{`{"min_confidence":0}`, envelope.Requirements{HasMinConfidence: true}, ""},
		{`{"min_confidence":1}`, envelope.Requirements{MinConfidence: 1, HasMinConfidence: true}, ""},
		{`{"decision_evidence":"none"}`, envelope.Requirements{DecisionEvidence: envelope.EvidenceNone}, ""},
		{`{"Timeout_ms":1,"x":{"timeout_ms":-1}}`, envelope.Requirements{}, ""},
		{`{"\u0074imeout_ms":1}`, envelope.Requirements{Timeout: time.Millisecond}, ""},
		{`{"timeout_ms":0}`, envelope.Requirements{}, "requires.timeout_ms"},
		{`{"timeout_ms":-1}`, envelope.Requirements{}, "requires.timeout_ms"},
		{`{"timeout_ms":"30s"}`, envelope.Requirements{}, "requires.timeout_ms"},
		{`{"timeout_ms":1e400}`, envelope.Requirements{}, "requires.timeout_ms"},
		{`{"evidence":1}`, envelope.Requirements{}, "requires.evidence"},
		{`{"evidence":true,"human_approval":"yes"}`, envelope.Requirements{Evidence: true}, "requires.human_approval"},
		{`{"timeout_ms":-5,"min_confidence":3,"stream":true}`, envelope.Requirements{Stream: true}, "requires.timeout_ms"},
		{`{"stream":"true"}`, envelope.Requirements{}, "requires.stream"},
		{`{"format":["json"]}`, envelope.Requirements{}, "requires.format"},
		{`{"min_confidence":1.01}`, envelope.Requirements{}, "requires.min_confidence"},
		{`{"min_confidence":-0.1}`, envelope.Requirements{}, "requires.min_confidence"},
		{`{"min_confidence":"0.9"}`, envelope.Requirements{}, "requires.min_confidence"},
		{`{"decision_evidence":"FULL"}`, envelope.Requirements{}, "requires.decision_evidence"},
		{`{"decision_evidence":true}`, envelope.Requirements{}, "requires.decision_evidence"},
	} {
		e := mustParse(t, strings.Replace(draftTask, `{"timeout_ms":30000,"evidence":true,"human_approval":false}`, tt.requires, 1))
		got, err := e.Requirements()
		if tt.fault == "" {
			if err != nil || got != tt.want {
				t.Errorf("%s: got %+v, %v; want %+v", tt.requires, got, err, tt.want)
			}
			continue
		}
		var coded *envelope.Error
		if !errors.As(err, &coded) || coded.Code != envelope.CodeRequires || !strings.Contains(coded.Message, tt.fault) || got != tt.want {
			t.Errorf("%s: got %+v, %v; want E_REQUIRES for %s", tt.requires, got, err, tt.fault)
		}
	}
	full := envelope.Requirements{Timeout: 1500 * time.Millisecond, HumanApproval: true, Evidence: true, Format: `j"`, MinConfidence: 0.5, HasMinConfidence: true, DecisionEvidence: envelope.EvidenceMinimal, Stream: true}
	const want = `{"decision_evidence":"minimal","evidence":true,"format":"j\"","human_approval":true,"min_confidence":0.5,"stream":true,"timeout_ms":1500}`
	if full.String() != want || (envelope.Requirements{}).String() != "{}" {
		t.Errorf("got %s and %s", full, envelope.Requirements{})
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	task := mustParse(t, draftTask)
	ref, err := task.Refer("agent.archive")
	if err != nil {
		t.Fatal(err)
	}
	hash, err := task.Hash()
	if err != nil {
		t.Fatal(err)
	}
	if want := (envelope.Reference{ID: task.ID, Corr: task.Corr, Type: "aee.envelope", Locator: "agent.archive", Hash: hash}); ref != want {
		t.Errorf("got %+v, want %+v", ref, want)
	}
	changed := task.Clone()
	changed.Priority = envelope.PriorityLow
	if h, err := changed.Hash(); err != nil || h == hash {
		t.Errorf("the hash does not cover priority: %s, %v", h, err)
	}
	data, err := json.Marshal(map[string]any{"references": []envelope.Reference{ref}, "text": "see there"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		payload string
		want    []envelope.Reference
		ok      bool
	}{
		{string(data), []envelope.Reference{ref}, true},
		{`{}`, nil, true},
		{`{"references":[]}`, []envelope.Reference{}, true},
		{`{"nested":{"references":[{"id":"x","type":"aee.envelope"}]}}`, nil, true},
		{`{"references":[{"id":"12345678","type":"aee.envelope"}]}`, []envelope.Reference{{ID: "12345678", Type: "aee.envelope"}}, true},
		{`{"references":{"id":"x"}}`, nil, false},
		{`{"references":["x"]}`, nil, false},
		{`{"references":[{"type":"aee.envelope"}]}`, nil, false},
		{`{"references":[{"id":"x"}]}`, nil, false},
		{`{"references":[{"id":"x","type":"url"}]}`, nil, false},
		{`{"references":[{"id":1,"type":"aee.envelope"}]}`, nil, false},
		{`{"references":null}`, nil, true},
		{`{"references":[null]}`, nil, false},
		{`{"references":[{"ID":"12345678","type":"aee.envelope"}]}`, nil, false}, // names are case-sensitive
		{`{"referenc\u0065s":[{"id":"x"}]}`, nil, false},
		{`{"references":[{"i\u0064":"12345678","type":"aee.envelope","locator":null,"more":[1]}]}`, []envelope.Reference{{ID: "12345678", Type: "aee.envelope"}}, true},
		{`{"references":[{"id":"12345678","type":"aee.envelope","hash":5}]}`, nil, false},
	} {
		got, err := (&envelope.Envelope{Payload: json.RawMessage(tt.payload)}).References()
		if (err == nil) != tt.ok || tt.ok && !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %+v, %v; want %+v", tt.payload, got, err, tt.want)
		}
	}
}

func TestWithReferences(t *testing.T) {
	t.Parallel()
	a, b := envelope.Reference{ID: "aaaaaaaa", Type: envelope.ReferenceType}, envelope.Reference{ID: "bbbbbbbb", Type: envelope.ReferenceType, Locator: "agent.b"}
	for _, tt := range []struct {
		payload string
		more    []envelope.Reference
		want    string // "": an error
	}{
		{`{}`, nil, `{}`},
		{`{}`, []envelope.Reference{a}, `{"references":[{"id":"aaaaaaaa","type":"aee.envelope"}]}`},
		{"{\"z\": 1.50 }\n", []envelope.Reference{a, b}, `{"z": 1.50 ,"references":[{"id":"aaaaaaaa","type":"aee.envelope"},{"id":"bbbbbbbb","type":"aee.envelope","locator":"agent.b"}]}`},
		{`{"references":[{"id":"aaaaaaaa","type":"aee.envelope"}],"a":1}`, []envelope.Reference{a}, `{"references":[{"id":"aaaaaaaa","type":"aee.envelope"}],"a":1}`},
		{`{"references":[{"id":"aaaaaaaa","type":"aee.envelope"}],"a":1}`, []envelope.Reference{b, b}, `{"a":1,"references":[{"id":"aaaaaaaa","type":"aee.envelope"},{"id":"bbbbbbbb","type":"aee.envelope","locator":"agent.b"}]}`},
		{`{"references":[{"x_page":1.50,"id":"aaaaaaaa","type":"aee.envelope"}]}`, []envelope.Reference{b}, `{"references":[{"x_page":1.50,"id":"aaaaaaaa","type":"aee.envelope"},{"id":"bbbbbbbb","type":"aee.envelope","locator":"agent.b"}]}`},
		{`{"references":null}`, []envelope.Reference{a}, `{"references":[{"id":"aaaaaaaa","type":"aee.envelope"}]}`},
		{`{"references":"none"}`, []envelope.Reference{a}, ""},
	} {
		before := tt.payload
		got, err := envelope.WithReferences(json.RawMessage(tt.payload), tt.more...)
		if string(got) != tt.want || (err == nil) != (tt.want != "") || tt.payload != before {
			t.Errorf("%s: got %s, %v; want %s", tt.payload, got, err, tt.want)
		}
	}
}

func TestKeepReferences(t *testing.T) {
	t.Parallel()
	keep := func(r envelope.Reference) bool { return r.Corr != "mine" }
	const mine, other = `{"id":"aaaaaaaa","type":"aee.envelope","corr":"mine"}`, `{"id":"bbbbbbbb","corr":"other","type":"aee.envelope","x_page":1.50}`
	for payload, want := range map[string]string{
		`{}`:                                     `{}`,
		`{"z": 1, "references":[` + other + `]}`: `{"z": 1, "references":[` + other + `]}`,
		`{"z": 1.50, "references":[` + mine + `], "a\u0062":[1, 2]}`: `{"z":1.50,"ab":[1, 2]}`,
		`{"references":[` + mine + `]}`:                              `{}`,
		`{"references":[` + mine + `,` + other + `],"z":1}`:          `{"references":[` + other + `],"z":1}`,
		`{"references":"none"}`:                                      `{"references":"none"}`,
	} {
		if got := envelope.KeepReferences(json.RawMessage(payload), keep); string(got) != want {
			t.Errorf("%s: got %s, want %s", payload, got, want)
		}
	}
}

// TestAllocations makes sure that the hot path does not allocate more than it does now.
func TestAllocations(t *testing.T) {
	data := []byte(draftTask)
	e := mustParse(t, draftTask)
	buf := make([]byte, 0, 4096)
	unsorted := json.RawMessage(`{"window":"24h","cluster":"node.lan","n":[1.50,1e3]}`)
	for name, tt := range map[string]struct {
		max float64
		f   func()
	}{
		"Parse":           {2, func() { envelope.Parse(data) }}, // the envelope and its strings
		"AppendJSON":      {0, func() { e.AppendJSON(buf) }},
		"AppendCanonical": {0, func() { envelope.AppendCanonical(buf, unsorted) }},
		"References":      {0, func() { e.References() }}, // of a payload that has none
	} {
		if n := testing.AllocsPerRun(100, tt.f); n > tt.max && !raceEnabled {
			t.Errorf("%s allocates %v times, want at most %v", name, n, tt.max)
		}
	}
}

// A peer reads this text, so it must not contain names of Go types.
func TestReferencesThatAreNoArray(t *testing.T) {
	t.Parallel()
	for _, refs := range []string{`{}`, `"x"`, `5`, `true`} {
		_, err := (&envelope.Envelope{Payload: []byte(`{"references":` + refs + `}`)}).References()
		if err == nil || err.Error() != "payload.references must be an array of reference objects" {
			t.Errorf("%s: %v", refs, err)
		}
	}
}

// What a record has is parsed whatever its size, however deep it is, and with any number of
// values; all other rules hold.
func TestParseStoredHasNoLimitOfSize(t *testing.T) {
	e := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{"text":"`+strings.Repeat("x", 2<<20)+`"}`))
	data, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := envelope.Parse(data); !errors.Is(err, envelope.ErrTooLarge) {
		t.Errorf("Parse: %v", err)
	}
	if got, err := envelope.ParseStored(data); err != nil || len(got.Payload) != len(e.Payload) {
		t.Errorf("ParseStored: %v", err)
	}
	for name, payload := range map[string]string{
		"wide": `{"a":[` + strings.Repeat("1,", envelope.DefaultMaxValues) + "1]}",
		"deep": `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}",
	} {
		data := bytes.Replace(data, e.Payload, []byte(payload), 1)
		if _, err := envelope.Parse(data); err == nil || errors.Is(err, envelope.ErrTooLarge) {
			t.Errorf("%s: Parse: %v", name, err)
		}
		if got, err := envelope.ParseStored(data); err != nil || string(got.Payload) != payload {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"", "{}", string(data[:len(data)-1])} {
		if _, err := envelope.ParseStored([]byte(bad)); err == nil {
			t.Errorf("%d bytes were parsed", len(bad))
		}
	}
}

func TestEncodeJSONWritesNoEscapesForHTML(t *testing.T) {
	t.Parallel()
	got, err := envelope.EncodeJSON(map[string]any{"a": "<&>", "b": json.RawMessage(`{"c": 1.50}`)})
	if want := `{"a":"<&>","b":{"c":1.50}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if got, err := envelope.EncodeJSON(json.RawMessage(`{`)); err == nil {
		t.Errorf("what is not JSON became %s", got)
	}
}

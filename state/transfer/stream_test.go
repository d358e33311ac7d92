package transfer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// fullState returns a document with everything that a handoff has a message for. Its
// checksum is right.
func fullState(t testing.TB) []byte {
	t.Helper()
	long := strings.Repeat("Grüße, \"Welt\"\n\\", 20_000) // several parts, cut between characters
	return stated(t, fmt.Sprintf(`{
		"x-sc-schema": "agent-state.schema.json", "sc_standard": "SC-006", "sc_version": "3.4.0",
		"state_id": "33333333-3333-4333-8333-333333333333", "agent_id": "11111111-1111-4111-8111-111111111111",
		"run_id": "22222222-2222-4222-8222-222222222222", "agent_version": "",
		"checkpoint_at": "2026-11-20T12:00:00Z", "status": "migrating", "iteration": 3.0,
		"pipeline_position": {"current_step": "review", "completed_steps": ["fetch"], "remaining_steps": []},
		"conversation": [
			{"role": "user", "content": "hello"},
			{"role": "assistant", "content": %s},
			{"role": "tool", "content": "{\"a\":1e2}", "tool_call_id": "c1", "tool_name": "f"}
		],
		"memory_snapshot": [{"scope": "user", "key": "k", "content": "v"}],
		"pending_tool_calls": [{"id": "c2", "tool_name": "f", "arguments": {"n": 1.50, "deep": [[], {}]}, "status": "in_flight"}],
		"subagent_states": [{"alias": "s", "agent_id": "44444444-4444-4444-8444-444444444444", "output": null}],
		"variables": {"big": %s, "n": 12345678901234}, "x-aeemesh": {"format": 1, "told": "half a sen"},
		"provenance": {"source_platform": "aeemesh/berlin", "checksum": ""}
	}`, quote(long), quote(long)))
}

// bareState returns a document without optional members, and with empty lists.
func bareState(t testing.TB) []byte {
	t.Helper()
	return stated(t, `{"sc_standard":"SC-006","state_id":"33333333-3333-4333-8333-333333333333","agent_id":"11111111-1111-4111-8111-111111111111",
		"run_id":"22222222-2222-4222-8222-222222222222","checkpoint_at":"2026-11-20T12:00:00Z","status":"paused",
		"memory_snapshot":[],"provenance":{"source_platform":"aeemesh/berlin","checksum":""}}`)
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// stated returns the text with its checksum filled in.
func stated(t testing.TB, text string) []byte {
	t.Helper()
	sum, err := state.ContentChecksum([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.NewReplacer(`"checksum": ""`, `"checksum": "`+sum+`"`, `"checksum":""`, `"checksum":"`+sum+`"`).Replace(text))
}

// grantFor returns a grant for the document.
func grantFor(t testing.TB, doc []byte) transfer.Grant {
	t.Helper()
	g := grant()
	var err error
	if g.Checksum, err = state.ContentChecksum(doc); err != nil {
		t.Fatal(err)
	}
	return g
}

func accepts(g transfer.Grant) func(transfer.Init) (transfer.Grant, error) {
	return func(transfer.Init) (transfer.Grant, error) { return g, nil }
}

// written returns the handoff stream of a document.
func written(t testing.TB, doc []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := transfer.Write(context.Background(), &b, "the token", doc); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func canonical(t testing.TB, doc []byte) string {
	t.Helper()
	c, err := envelope.Canonical(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(c)
}

func TestHandoffCarriesTheWholeState(t *testing.T) {
	t.Parallel()
	for name, doc := range map[string][]byte{"full": fullState(t), "bare": bareState(t)} {
		g := grantFor(t, doc)
		var init transfer.Init
		got, granted, err := transfer.Read(bytes.NewReader(written(t, doc)), transfer.Limits{}, func(i transfer.Init) (transfer.Grant, error) {
			init = i
			return g, nil
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if canonical(t, got) != canonical(t, doc) {
			t.Errorf("%s: got\n%.3000s\nwant\n%.3000s", name, got, doc)
		}
		if granted != g || init.Token != "the token" || init.State.RunID != g.RunID || init.State.Provenance.SourcePlatform != "aeemesh/berlin" {
			t.Errorf("%s: grant %+v, init %+v", name, granted, init)
		}
	}
}

// The form of the lines is a contract with other platforms.
func TestHandoffLines(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSpace(string(written(t, fullState(t)))), "\n")
	types := map[string]int{}
	for i, line := range lines {
		var m struct {
			Type string `json:"type"`
			Seq  int    `json:"seq"`
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m.Seq != i || len(line) > 100<<10 {
			t.Errorf("line %d: seq %d, %d bytes", i, m.Seq, len(line))
		}
		types[m.Type]++
	}
	all := []string{"handoff_init", "context_chunk", "memory_item", "pipeline_state", "pending_tool", "subagent_ref", "handoff_complete"}
	for _, typ := range all {
		if types[typ] == 0 {
			t.Errorf("no %s among %v", typ, types)
		}
	}
	if len(types) != len(all) || types["context_chunk"] < 5 || types["pipeline_state"] < 5 {
		t.Errorf("the types are %v", types)
	}
	if lines[0] != `{"type":"handoff_init","seq":0,"migration_token":"the token","state":{"sc_standard":"SC-006","sc_version":"3.4.0",`+
		`"state_id":"33333333-3333-4333-8333-333333333333","agent_id":"11111111-1111-4111-8111-111111111111","run_id":"22222222-2222-4222-8222-222222222222",`+
		`"agent_version":"","checkpoint_at":"2026-11-20T12:00:00Z","status":"migrating","iteration":3.0,"conversation":[],"memory_snapshot":[],`+
		`"pending_tool_calls":[],"subagent_states":[],"provenance":{"source_platform":"aeemesh/berlin","checksum":"`+grantFor(t, fullState(t)).Checksum+`"}}}` {
		t.Errorf("the first line is %s", lines[0])
	}
	if want := `{"type":"context_chunk","seq":`; !strings.Contains(string(written(t, fullState(t))), want) || !strings.Contains(strings.Join(lines, "\n"), `"value":{"role":"user","content":"hello"}}`) {
		t.Errorf("no message as it should be")
	}
}

// The reader judges the token before it reads past the first line, and reads nothing
// after it has refused the token.
func TestHandoffTokenIsJudgedFirst(t *testing.T) {
	t.Parallel()
	lines := bytes.SplitAfter(written(t, fullState(t)), []byte("\n"))
	r, w := io.Pipe()
	go func() {
		w.Write(lines[0])
		w.CloseWithError(errors.New("read on"))
	}()
	refused := fmt.Errorf("%w: twice", transfer.ErrTokenUsed)
	judged := false
	doc, _, err := transfer.Read(r, transfer.Limits{}, func(transfer.Init) (transfer.Grant, error) {
		judged = true
		return transfer.Grant{}, refused
	})
	if !judged || !errors.Is(err, refused) || doc != nil {
		t.Errorf("judged %v, %v, %q", judged, err, doc)
	}
}

func TestHandoffGrantForAnotherState(t *testing.T) {
	t.Parallel()
	doc := fullState(t)
	for name, change := range map[string]func(*transfer.Grant){
		"agent":    func(g *transfer.Grant) { g.AgentID = "55555555-5555-4555-8555-555555555555" },
		"run":      func(g *transfer.Grant) { g.RunID = "55555555-5555-4555-8555-555555555555" },
		"state":    func(g *transfer.Grant) { g.StateID = "55555555-5555-4555-8555-555555555555" },
		"source":   func(g *transfer.Grant) { g.Source = "aeemesh/rome" },
		"checksum": func(g *transfer.Grant) { g.Checksum = strings.Repeat("0", 64) },
	} {
		g := grantFor(t, doc)
		change(&g)
		if got, _, err := transfer.Read(bytes.NewReader(written(t, doc)), transfer.Limits{}, accepts(g)); !errors.Is(err, transfer.ErrTokenState) || got != nil {
			t.Errorf("%s: %v, %.20q", name, err, got)
		}
	}
}

func TestHandoffThatIsRefused(t *testing.T) {
	t.Parallel()
	doc := stated(t, `{"sc_standard":"SC-006","state_id":"33333333-3333-4333-8333-333333333333","agent_id":"11111111-1111-4111-8111-111111111111",
		"run_id":"22222222-2222-4222-8222-222222222222","checkpoint_at":"2026-11-20T12:00:00Z","status":"paused",
		"conversation":[{"role":"user","content":"hello"},{"role":"assistant","content":"world"}],"variables":{"n":1},
		"provenance":{"source_platform":"aeemesh/berlin","checksum":""}}`)
	g := grantFor(t, doc)
	whole := string(written(t, doc))
	lines := strings.SplitAfter(whole, "\n")
	init, vars, one, two, end := lines[0], lines[1], lines[2], lines[3], lines[4]
	at := func(seq int, line string) string { // the line with another sequence number
		i := strings.Index(line, `"seq":`) + 6
		j := i + strings.IndexAny(line[i:], ",}")
		return line[:i] + fmt.Sprint(seq) + line[j:]
	}
	swap := strings.Replace
	rest := vars + one + two + end
	failure := `{"type":"handoff_error","seq":2,"code":"aborted","message":"no more"}` + "\n"
	for name, tt := range map[string]struct {
		stream string
		want   error
	}{
		"nothing":                      {"", transfer.ErrStream},
		"no JSON":                      {"hello\n", transfer.ErrStream},
		"an empty line":                {"\n" + whole, transfer.ErrStream},
		"no init":                      {at(0, vars) + at(1, one) + at(2, two) + at(3, end), transfer.ErrStream},
		"an early end":                 {init + vars + one, transfer.ErrStream},
		"half a line":                  {whole[:len(whole)-10], transfer.ErrStream},
		"two inits":                    {init + at(1, init) + at(2, vars) + at(3, one) + at(4, two) + at(5, end), transfer.ErrStream},
		"something behind the end":     {whole + at(5, end), transfer.ErrStream},
		"an empty line behind the end": {whole + "\n", transfer.ErrStream},
		"a gap":                        {init + vars + one + at(4, two) + at(5, end), transfer.ErrStream},
		"a double":                     {init + vars + one + one + at(4, two) + at(5, end), transfer.ErrStream},
		"a line left out":              {init + vars + one + at(3, end), state.ErrChecksum},
		"lines in another order":       {init + vars + at(2, two) + at(3, one) + end, state.ErrChecksum},
		"another text":                 {swap(whole, "world", "World", 1), state.ErrChecksum},
		"another status":               {swap(whole, `"paused"`, `"running"`, 1), state.ErrChecksum},
		"another variable":             {swap(whole, `{"n":1}`, `{"n":2}`, 1), state.ErrChecksum},
		"another checksum at the end":  {init + vars + one + two + swap(end, g.Checksum, strings.Repeat("0", 64), 1), state.ErrChecksum},
		"another checksum within":      {swap(init, g.Checksum, strings.Repeat("0", 64), 1) + vars + one + two + end, state.ErrChecksum},
		"an error":                     {init + vars + failure, transfer.ErrAborted},
		"an error at once":             {at(0, failure), transfer.ErrAborted},
		"an unknown type":              {init + `{"type":"handoff_pause","seq":1}` + "\n", transfer.ErrStream},
		"an unknown member":            {init + swap(vars, `"value"`, `"secret":1,"value"`, 1), transfer.ErrStream},
		"a member twice":               {init + swap(vars, `"value"`, `"seq":1,"value"`, 1), transfer.ErrStream},
		"variables twice":              {init + vars + at(2, vars), transfer.ErrStream},
		"pipeline of something else":   {init + swap(vars, "variables", "conversation", 1), transfer.ErrStream},
		"init with variables":          {swap(init, `"status"`, `"variables":{},"status"`, 1) + rest, transfer.ErrStream},
		"init with a conversation":     {swap(init, `"conversation":[]`, `"conversation":[{"role":"user","content":"hi"}]`, 1) + rest, transfer.ErrStream},
		"init with a second token":     {swap(init, `"source_platform"`, `"migration_token":"x","source_platform"`, 1) + rest, transfer.ErrStream},
		"init without a token":         {swap(init, `"migration_token":"the token",`, ``, 1) + rest, transfer.ErrStream},
		"init without a status":        {swap(init, `"status":"paused",`, ``, 1) + rest, state.ErrInvalid},
		"a message with another role":  {swap(whole, `"user"`, `"boss"`, 1), state.ErrChecksum},
		"a value that is no object":    {init + vars + swap(one, `{"role":"user","content":"hello"}`, `7`, 1), transfer.ErrStream},
		"neither value nor part":       {init + `{"type":"context_chunk","seq":1}` + "\n", transfer.ErrStream},
		"value and part":               {init + `{"type":"context_chunk","seq":1,"value":{},"part":"{}"}` + "\n", transfer.ErrStream},
		"more of a value":              {init + `{"type":"context_chunk","seq":1,"value":{},"more":true}` + "\n", transfer.ErrStream},
		"more that is false":           {init + `{"type":"context_chunk","seq":1,"part":"{}","more":false}` + "\n", transfer.ErrStream},
		"a value amid parts":           {init + `{"type":"context_chunk","seq":1,"part":"{","more":true}` + "\n" + at(2, one), transfer.ErrStream},
		"a value between parts": {init + vars + `{"type":"context_chunk","seq":2,"part":"{\"role\":\"user\",","more":true}` + "\n" + at(3, two) +
			`{"type":"context_chunk","seq":4,"part":"\"content\":\"hello\"}"}` + "\n" + at(5, end), transfer.ErrStream},
		"another type amid parts": {init + `{"type":"context_chunk","seq":1,"part":"{","more":true}` + "\n" + `{"type":"memory_item","seq":2,"part":"}"}` + "\n", transfer.ErrStream},
		"the end amid parts":      {init + `{"type":"context_chunk","seq":1,"part":"{","more":true}` + "\n" + at(2, end), transfer.ErrStream},
		"parts that are no JSON":  {init + `{"type":"context_chunk","seq":1,"part":"{","more":true}` + "\n" + `{"type":"context_chunk","seq":2,"part":"{"}` + "\n", transfer.ErrStream},
		"a line that is too long": {init + `{"type":"context_chunk","seq":1,"part":"` + strings.Repeat("x", 300<<10) + `"}` + "\n", state.ErrTooLarge},
		"bytes that are no UTF-8": {init + vars + swap(one, "hello", "\xff", 1), transfer.ErrStream},
	} {
		got, granted, err := transfer.Read(strings.NewReader(tt.stream), transfer.Limits{}, accepts(g))
		if !errors.Is(err, tt.want) || got != nil || granted != (transfer.Grant{}) {
			t.Errorf("%s: %v, %.20q; want %v", name, err, got, tt.want)
		}
		if e := transfer.NewError(err); e.Code == transfer.CodeInternal || !errors.Is(e, tt.want) {
			t.Errorf("%s: the other side is told %+v", name, e)
		}
	}
	for name, stream := range map[string]string{
		"as it is":               whole,
		"without a last newline": whole[:len(whole)-1],
		"with CRLF":              strings.ReplaceAll(whole, "\n", "\r\n"),
		"with x- members":        init + swap(vars, `"value"`, `"x-trace":1,"value"`, 1) + one + two + end,
		"types interleaved":      init + at(1, one) + at(2, vars) + two + end,
		"in parts":               init + vars + `{"type":"context_chunk","seq":2,"part":"{\"role\":\"user\",","more":true}` + "\n" + `{"type":"context_chunk","seq":3,"part":"\"content\":\"hello\"}"}` + "\n" + at(4, two) + at(5, end),
	} {
		if _, _, err := transfer.Read(strings.NewReader(stream), transfer.Limits{}, accepts(g)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHandoffLimits(t *testing.T) {
	t.Parallel()
	doc := fullState(t)
	stream := written(t, doc)
	count := bytes.Count(stream, []byte("\n"))
	for name, tt := range map[string]struct {
		limits transfer.Limits
		ok     bool
	}{
		"messages, as many":   {transfer.Limits{Messages: count}, true},
		"messages, one fewer": {transfer.Limits{Messages: count - 1}, false},
		"bytes, as many":      {transfer.Limits{Total: int64(len(stream))}, true},
		"bytes, one fewer":    {transfer.Limits{Total: int64(len(stream)) - 1}, false},
	} {
		_, _, err := transfer.Read(bytes.NewReader(stream), tt.limits, accepts(grantFor(t, doc)))
		if tt.ok != (err == nil) || err != nil && !errors.Is(err, state.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHandoffEndsInAnErrorWhenTheSenderGivesUp(t *testing.T) {
	t.Parallel()
	doc := fullState(t)
	for name, tt := range map[string]struct {
		cause error
		want  error
	}{
		"cancelled":  {nil, transfer.ErrAborted},
		"with cause": {fmt.Errorf("%w: the target is slow", transfer.ErrTimeout), transfer.ErrTimeout},
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		r, w := io.Pipe()
		sent := make(chan error, 1)
		go func() {
			err := transfer.Write(ctx, w, "the token", doc)
			w.Close()
			sent <- err
		}()
		// The reader stops the sender in the middle: the first message arrives, the next
		// does not.
		got, _, err := transfer.Read(r, transfer.Limits{}, func(transfer.Init) (transfer.Grant, error) {
			cancel(tt.cause)
			return grantFor(t, doc), nil
		})
		var e *transfer.Error
		if !errors.As(err, &e) || !e.Remote || !errors.Is(err, tt.want) || got != nil {
			t.Errorf("%s: the reader has %v", name, err)
		}
		if err := <-sent; err == nil {
			t.Errorf("%s: the sender thinks that all went well", name)
		}
	}
}

func TestHandoffWriterRefuses(t *testing.T) {
	t.Parallel()
	doc := string(bareState(t))
	for name, text := range map[string]string{
		"no JSON":             "{",
		"no object":           "[]",
		"a wrong checksum":    strings.Replace(doc, `"paused"`, `"running"`, 1),
		"a token within":      strings.Replace(doc, `"source_platform"`, `"migration_token":"x","source_platform"`, 1),
		"a name twice":        strings.Replace(doc, `"status"`, `"state_id":"x","status"`, 1),
		"a list that is none": string(stated(t, `{"conversation":7,"provenance":{"checksum":""}}`)),
		"a head without end":  string(stated(t, `{"_comment":"`+strings.Repeat("x", 300<<10)+`"}`)),
	} {
		var b bytes.Buffer
		if err := transfer.Write(context.Background(), &b, "t", []byte(text)); err == nil {
			t.Errorf("%s: written as %.200q", name, b.String())
		}
		if bytes.Contains(b.Bytes(), []byte("handoff_complete")) {
			t.Errorf("%s: the stream looks complete", name)
		}
	}
	broken := errors.New("broken")
	if err := transfer.Write(context.Background(), failing{broken}, "t", []byte(doc)); !errors.Is(err, broken) {
		t.Errorf("a broken stream: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// An internal error of the reader is not blamed on the other side, and is not shown to
// it.
func TestHandoffInternalErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire at 10.0.0.7")
	_, _, err := transfer.Read(io.MultiReader(bytes.NewReader(written(t, bareState(t))[:40]), readFailing{broken}), transfer.Limits{}, accepts(transfer.Grant{}))
	if !errors.Is(err, broken) {
		t.Errorf("the cause is lost: %v", err)
	}
	if e := transfer.NewError(err); e.Code != transfer.CodeInternal || strings.Contains(e.Message, "10.0.0.7") {
		t.Errorf("the other side is told %+v", e)
	}
	for _, code := range []string{"internal", "from a later release"} {
		_, _, err := transfer.Read(strings.NewReader(`{"type":"handoff_error","seq":0,"code":"`+code+`","message":"m"}`), transfer.Limits{}, accepts(transfer.Grant{}))
		var e *transfer.Error
		if !errors.As(err, &e) || e.Code != transfer.CodeInternal || e.Message != "m" || !e.Remote {
			t.Errorf("%s: %v", code, err)
		}
	}
}

type readFailing struct{ err error }

func (f readFailing) Read([]byte) (int, error) { return 0, f.err }

// FuzzReadHandoff: a stream that is read to its end gives a valid state with the granted
// checksum, and writing it again gives the same state.
func FuzzReadHandoff(f *testing.F) {
	bare := bareState(f)
	g := grantFor(f, bare)
	f.Add(written(f, bare))
	f.Add(written(f, fullState(f)))
	f.Add([]byte(`{"type":"handoff_error","seq":0,"code":"aborted","message":"m"}`))
	f.Add(bytes.ReplaceAll(written(f, bare), []byte(`"memory_snapshot":[]`), []byte(`"conversation":[]`)))
	f.Fuzz(func(t *testing.T, stream []byte) {
		// An issuer of tokens may send any state: the grant agrees to everything.
		agreeable := func(i transfer.Init) (transfer.Grant, error) {
			g := g
			g.AgentID, g.RunID, g.StateID, g.Source = i.State.AgentID, i.State.RunID, i.State.StateID, ""
			if i.State.Provenance != nil {
				g.Source = i.State.Provenance.SourcePlatform
			}
			if lines := bytes.Split(bytes.TrimSpace(stream), []byte("\n")); len(lines) > 0 {
				var end struct {
					Checksum string `json:"checksum"`
				}
				_ = json.Unmarshal(lines[len(lines)-1], &end)
				g.Checksum = end.Checksum
			}
			return g, nil
		}
		doc, granted, err := transfer.Read(bytes.NewReader(stream), transfer.Limits{}, agreeable)
		if err != nil {
			transfer.NewError(err)
			return
		}
		if _, err := aaif.Parse(doc, aaif.Options{Kind: aaif.KindState, MaxBytes: len(doc), MaxDepth: 128}); err != nil {
			t.Fatal(err)
		}
		if sum, err := state.ContentChecksum(doc); err != nil || sum != granted.Checksum {
			t.Fatalf("checksum %s, %v; granted %s", sum, err, granted.Checksum)
		}
		again, _, err := transfer.Read(bytes.NewReader(written(t, doc)), transfer.Limits{}, accepts(granted))
		if err != nil || canonical(t, again) != canonical(t, doc) {
			t.Fatalf("%v: written anew it is\n%s, and was\n%s", err, again, doc)
		}
	})
}

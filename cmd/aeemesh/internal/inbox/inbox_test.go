package inbox

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A plain text stands for the only member that the asker's schema leaves open.
func TestATextFitsTheOnlyMemberOfASchema(t *testing.T) {
	t.Parallel()
	const verdict = `{"type":"object","required":["verdict"],"properties":{"verdict":{"enum":["approve","reject"]},"why":{"type":"string"}}}`
	const either = `{"type":"object","oneOf":[{"required":["yes"]},{"required":["count"]}],"properties":{"yes":{"type":"boolean"},"count":{"type":"integer"}},"additionalProperties":false}`
	for _, c := range []struct{ schema, payload, want string }{
		{``, `{"text":"hi"}`, `{"text":"hi"}`},
		{verdict, `{"verdict":"reject","why":"late"}`, `{"verdict":"reject","why":"late"}`},
		{verdict, `{"text":"approve"}`, `{"verdict":"approve"}`},
		{verdict, `{"text":"perhaps"}`, ``},
		{verdict, `{"verdict":"perhaps"}`, ``},
		{`{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}`, `{"text":" 7 "}`, `{"n":7}`},
		{either, `{"text":"true"}`, `{"yes":true}`},
		{either, `{"text":"3"}`, `{"count":3}`},
		{either, `{"text":"maybe"}`, ``},
		{`{"type":"object","required":["a","b"]}`, `{"text":"x"}`, ``},
		{`{"type":7}`, `{"text":"the asker's mistake"}`, `{"text":"the asker's mistake"}`},
	} {
		var due json.RawMessage
		if c.schema != "" {
			due = json.RawMessage(c.schema)
		}
		got, err := fitAnswer(due, json.RawMessage(c.payload))
		if string(got) != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s for %s: %s, %v, want %s", c.payload, c.schema, got, err, c.want)
		}
	}
}

func TestAboutIsALineOfText(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"text":"Ship\nit?"}`:                       "Ship it?",
		`{"text":"Ship?","draft":{"a":1}}`:           "Ship?",
		`{"draft":1}`:                                `{"draft":1}`,
		`{"text":7}`:                                 `{"text":7}`,
		`{"text":"` + strings.Repeat("é", 61) + `"}`: strings.Repeat("é", 59) + "…",
	} {
		if got := about(&mesh.PersonTask{Task: &envelope.Envelope{Payload: json.RawMessage(payload)}}); got != want {
			t.Errorf("%s: %q, want %q", payload, got, want)
		}
	}
}

func TestTimeLeftDependsOnTheState(t *testing.T) {
	t.Parallel()
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for _, c := range []struct {
		name string
		task mesh.PersonTask
		want string
	}{
		{"open", mesh.PersonTask{State: mesh.AskOpen, Until: soon}, "in "},
		{"open without a deadline", mesh.PersonTask{State: mesh.AskOpen}, ""},
		{"overdue", mesh.PersonTask{State: mesh.AskOverdue, Until: past}, "ago"},
		{"withdrawn", mesh.PersonTask{State: mesh.AskWithdrawn, Until: soon}, ""},
		{"answered", mesh.PersonTask{State: mesh.AskAnswered, Until: soon, Answer: &envelope.Envelope{Type: envelope.TypeResult}}, ""},
		{"declined", mesh.PersonTask{State: mesh.AskAnswered, Answer: &envelope.Envelope{Type: envelope.TypeError}}, "declined"},
	} {
		if got := left(&c.task); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// An inbox that --limit has cut is reported on stderr, with --json too.
func TestAnInboxThatIsCutSaysSo(t *testing.T) {
	t.Parallel()
	for _, inJSON := range []bool{false, true} {
		for limit, want := range map[int]string{0: "", 1: "1 more: --limit 0 shows all\n", 2: ""} {
			var out, words bytes.Buffer
			a := &session.App{Term: term.New(&out, &words, func(string) string { return "" })}
			a.Term.JSON = inJSON
			asks := []*mesh.PersonTask{
				{State: mesh.AskAnswered, Answer: &envelope.Envelope{}, Task: &envelope.Envelope{ID: "task-0001", To: "human.ada", Payload: json.RawMessage(`{}`)}},
				{State: mesh.AskAnswered, Answer: &envelope.Envelope{}, Task: &envelope.Envelope{ID: "task-0002", To: "human.ada", Payload: json.RawMessage(`{}`)}},
			}
			if err := printAsks(a, asks, nil, "human.ada", limit); err != nil {
				t.Fatal(err)
			}
			if words.String() != want {
				t.Errorf("json %t, limit %d: stderr %q, want %q", inJSON, limit, words.String(), want)
			}
		}
	}
}

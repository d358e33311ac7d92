package envelope_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// TestCodesAreClosed fixes the list of codes, when each is used, and whether to retry.
func TestCodesAreClosed(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, info := range envelope.Codes {
		retry := "final"
		if info.Retryable {
			retry = "retry"
		}
		fmt.Fprintf(&b, "%-20s %s  %-8s  %s\n", info.Code, retry, info.Fixer, info.When)
		if !info.Code.Known() || info.Code.Retryable() != info.Retryable || info.When == "" {
			t.Errorf("%+v", info)
		}
	}
	path := filepath.Join("testdata", "codes.golden")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the codes differ from %s; they are a contract: run with -update only where that is meant\n%s", path, &b)
	}
	if c := envelope.Code("E_MY_OWN"); c.Known() || c.Retryable() {
		t.Error("an application's code counts as the mesh's")
	}
}

func TestErrorfHidesItsCause(t *testing.T) {
	t.Parallel()
	cause := fmt.Errorf("dial tcp 10.0.0.1: %w", io.ErrUnexpectedEOF)
	for _, tt := range []struct {
		err     *envelope.Error
		message string
		hidden  bool
	}{
		{envelope.Errorf(envelope.CodeTool, "tool %q failed after %d tries: %w", "lint", 3, cause), `tool "lint" failed after 3 tries`, true},
		{envelope.Errorf(envelope.CodeTool, "100%% of tool %s: %w", "x", cause), "100% of tool x", true},
		{envelope.Errorf(envelope.CodeTool, "no tool %s", "x"), "no tool x", false},
		{envelope.Errorf(envelope.CodeTool, "plain"), "plain", false},
		{envelope.Errorf(envelope.CodeTool, "%w", cause), "", true},
		{(&envelope.Error{Code: envelope.CodeTool, Message: "made"}).WithCause(cause), "made", true},
	} {
		if tt.err.Code != envelope.CodeTool || tt.err.Message != tt.message {
			t.Errorf("got %s %q, want message %q", tt.err.Code, tt.err.Message, tt.message)
		}
		if got := errors.Is(tt.err, io.ErrUnexpectedEOF); got != tt.hidden {
			t.Errorf("%q: the cause is found: %t", tt.message, got)
		}
		if strings.Contains(string(tt.err.Payload()), "10.0.0.1") {
			t.Errorf("%q: the cause goes to peers: %s", tt.message, tt.err.Payload())
		}
		if got := strings.Contains(tt.err.Error(), "10.0.0.1"); got != tt.hidden {
			t.Errorf("%q: for this side's log: %s", tt.message, tt.err)
		}
		if !errors.Is(fmt.Errorf("wrapped: %w", tt.err), &envelope.Error{Code: envelope.CodeTool}) || errors.Is(tt.err, &envelope.Error{Code: envelope.CodeModel}) {
			t.Errorf("%q: errors.Is by code", tt.message)
		}
	}
}

func TestAsError(t *testing.T) {
	t.Parallel()
	own := envelope.Errorf(envelope.CodeBusy, "full")
	if got := envelope.AsError(fmt.Errorf("step 2: %w", own)); got != own {
		t.Errorf("got %v", got)
	}
	secret := errors.New("password is hunter2")
	var nothing *envelope.Error
	for _, err := range []error{secret, fmt.Errorf("x: %w", secret), nothing} {
		got := envelope.AsError(err)
		if got.Code != envelope.CodeInternal || got.Retryable || strings.Contains(string(got.Payload()), "hunter2") {
			t.Errorf("%v became %v", err, got)
		}
	}
	if !errors.Is(envelope.AsError(secret), secret) {
		t.Error("the cause is lost")
	}
}

func TestErrorOf(t *testing.T) {
	t.Parallel()
	task := mustParse(t, draftTask)
	for _, tt := range []struct {
		payload string
		want    envelope.Error // apart from being marked as the peer's
		again   string         // as payload; "" if it is the same
	}{
		{`{"code":"E_TIMEOUT","message":"late","retryable":true,"backoff_ms":60000,"evidence_refs":["tcp:a->b"]}`,
			envelope.Error{Code: envelope.CodeTimeout, Message: "late", Retryable: true, BackoffMS: 60000, EvidenceRefs: []string{"tcp:a->b"}}, ""},
		{`{"code":"E_OWN","message":"m","retryable":false,"node":"pve02","n":1.50}`,
			envelope.Error{Code: "E_OWN", Message: "m", Details: []envelope.Member{{Name: "node", Value: []byte(`"pve02"`)}, {Name: "n", Value: []byte("1.50")}}}, ""},
		{`{}`, envelope.Error{Code: envelope.CodeAgent, Message: "the peer gave no message"}, `{"code":"E_AGENT","message":"the peer gave no message","retryable":false}`},
		{`{"code":5,"message":null,"retryable":"yes","backoff_ms":-1,"evidence_refs":["a",1]}`,
			envelope.Error{Code: envelope.CodeAgent, Message: "the peer gave no message"}, `{"code":"E_AGENT","message":"the peer gave no message","retryable":false}`},
		{`{"code":"E_BUSY","message":"m","retryable":true,"backoff_ms":1e300}`,
			envelope.Error{Code: envelope.CodeBusy, Message: "m", Retryable: true, BackoffMS: 9223372036854}, `{"code":"E_BUSY","message":"m","retryable":true,"backoff_ms":9223372036854}`},
	} {
		got := envelope.ErrorOf(task.Reply(envelope.TypeError, []byte(tt.payload)))
		if !got.FromPeer() {
			t.Errorf("%s: not from the peer", tt.payload)
		}
		plain := envelope.Error{Code: got.Code, Message: got.Message, Retryable: got.Retryable, BackoffMS: got.BackoffMS, EvidenceRefs: got.EvidenceRefs, Details: got.Details}
		if !reflect.DeepEqual(plain, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.payload, plain, tt.want)
		}
		if tt.again == "" {
			tt.again = tt.payload
		}
		if p := string(got.Payload()); p != tt.again {
			t.Errorf("passed on as %s, want %s", p, tt.again)
		}
	}
	if d := (&envelope.Error{}).WithBackoff(1500 * time.Millisecond); !d.Retryable || d.BackoffMS != 1500 || d.Backoff() != 1500*time.Millisecond {
		t.Errorf("WithBackoff: %+v", d)
	}
}

// TestPayloadOfAnyErrorIsValid fills an Error with values that a program of an agent may
// set.
func TestPayloadOfAnyErrorIsValid(t *testing.T) {
	t.Parallel()
	e := &envelope.Error{Code: "E_\xff", Message: "bad \xff\x00 \"text\"", EvidenceRefs: []string{"\xff", "<a>"}, Details: []envelope.Member{
		{Name: "code", Value: []byte("1")}, {Name: "x", Value: nil}, {Name: "y", Value: []byte("{")}, {Name: "\xff", Value: []byte("1")},
		{Name: "z", Value: []byte("1")}, {Name: "z", Value: []byte("2")},
	}}
	reply := mustParse(t, draftTask).ReplyError(e)
	if err := reply.Validate(); err != nil {
		t.Fatalf("%v: %s", err, reply.Payload)
	}
	want := `{"code":"E_` + "\uFFFD" + `","message":"bad ` + "\uFFFD" + `\u0000 \"text\"","retryable":false,"evidence_refs":["` + "\uFFFD" + `","<a>"],"z":1}`
	if string(reply.Payload) != want {
		t.Errorf("got  %s\nwant %s", reply.Payload, want)
	}
}

func TestErrorsSurviveTheirOwnJSON(t *testing.T) {
	t.Parallel()
	e := envelope.Errorf("E_MINE", "no luck").WithBackoff(time.Second)
	e.EvidenceRefs = []string{"r"}
	e.Details = []envelope.Member{{Name: "more", Value: []byte(`{"x":1}`)}}
	raw, err := json.Marshal(map[string]any{"error": e})
	if err != nil {
		t.Fatal(err)
	}
	var back struct{ Error *envelope.Error }
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back.Error, e) {
		t.Errorf("got %+v, want %+v", back.Error, e)
	}
	for _, bad := range []string{`{"error":"E_MINE"}`, `{"error":[]}`, `{"error":1}`} {
		if json.Unmarshal([]byte(bad), &back) == nil {
			t.Errorf("%s is read", bad)
		}
	}
}

package modeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
)

// Body answers every request with one body, without a network.
type Body struct{ Media, Text string }

// RoundTrip implements [http.RoundTripper].
func (b Body) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {b.Media}}, Body: io.NopCloser(strings.NewReader(b.Text)), Request: req}, nil
}

// CheckAnswer calls a model whose server may answer anything, as in a fuzz test. The result must
// be a usable turn or a [model.Error], and a streamed turn must equal the streamed text. The error
// of an adapter that cannot write the conversation as a request contains unsendable.
func CheckAnswer(t *testing.T, m model.Model, stream bool, unsendable string) {
	t.Helper()
	var told strings.Builder
	var onDelta func(model.Delta) error
	if stream {
		onDelta = func(d model.Delta) error {
			if d.Text == "" {
				t.Error("an empty delta")
			}
			told.WriteString(d.Text)
			return nil
		}
	}
	hi := model.User("hi")
	res, err := m.Generate(t.Context(), &model.Request{Model: "m", Messages: []model.Message{hi}}, onDelta)
	if (res == nil) == (err == nil) {
		t.Fatalf("response %v and error %v", res, err)
	}
	if err != nil {
		var e *model.Error
		if !errors.As(err, &e) {
			t.Fatalf("error %v is not an *Error", err)
		}
		return
	}
	if stream && told.String() != res.Message.Content {
		t.Errorf("streamed %q, answered %q", told.String(), res.Message.Content)
	}
	next := &model.Request{Model: "m", Messages: []model.Message{hi, res.Message}}
	if err := next.Validate(); err != nil {
		t.Errorf("the turn cannot go into a conversation: %v", err)
	}
	if _, err := m.Generate(t.Context(), next, nil); err != nil && strings.Contains(err.Error(), unsendable) {
		t.Errorf("the turn cannot be sent back: %v", err)
	}
}

// SameJSON compares JSON texts, numbers by their digits.
func SameJSON[A, B ~[]byte | ~string](t *testing.T, a A, b B) bool {
	t.Helper()
	return reflect.DeepEqual(decode(t, []byte(a)), decode(t, []byte(b)))
}

func decode(t *testing.T, b []byte) (v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("decode %q: %v", b, err)
	}
	return v
}

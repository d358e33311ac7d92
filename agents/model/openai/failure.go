package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

// refusal reads an answer with a status of 400 or above.
func refusal(res *http.Response) *report {
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body) // if it breaks off, the status says enough
	r := parseReport(body)
	r.status = res.StatusCode
	r.after = retryAfter(res.Header, time.Now())
	return r
}

// report is the server's report of a failure.
type report struct {
	code, typ, param, message string
	status                    int
	after                     time.Duration
}

func (r *report) Error() string { return "the server reported an error" }

// reported returns a *report if a document with a status below 400, or an event of a stream, is an
// error.
func reported(data []byte) error {
	var doc struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &doc) != nil || len(doc.Error) == 0 || bytes.Equal(doc.Error, []byte("null")) {
		return nil
	}
	return parseReport(data)
}

// parseReport reads {"error": {…}}, {"error": "…"}, {"message": "…"}, {"detail": "…"} and
// {"detail": [{"loc": […], "msg": "…"}]}. It takes no text from any other form.
func parseReport(body []byte) *report {
	var doc map[string]json.RawMessage
	if json.Unmarshal(body, &doc) != nil {
		return &report{}
	}
	fields := doc
	r := &report{}
	if raw, ok := doc["error"]; ok {
		var inner map[string]json.RawMessage
		if json.Unmarshal(raw, &inner) == nil && inner != nil {
			fields = inner
		} else {
			r.message = str(raw)
		}
	}
	r.code, r.typ, r.param = str(fields["code"]), str(fields["type"]), str(fields["param"])
	for _, name := range []string{"message", "detail"} {
		if r.message == "" {
			r.message = str(fields[name])
		}
		if r.message == "" {
			r.message = details(fields[name])
		}
	}
	if n, err := strconv.Atoi(r.code); err == nil && n >= 400 && n < 600 {
		r.status, r.code = n, ""
	}
	return r
}

// details returns the findings of the validator that many servers in Python use. Some put them into
// {"message": {"detail": […]}}.
func details(raw json.RawMessage) string {
	var inner struct{ Detail json.RawMessage }
	if json.Unmarshal(raw, &inner) == nil && len(inner.Detail) > 0 {
		raw = inner.Detail
	}
	var list []struct {
		Loc []any
		Msg string
	}
	if json.Unmarshal(raw, &list) != nil {
		return ""
	}
	var words []string
	for _, d := range list {
		var where []string
		for _, l := range d.Loc {
			where = append(where, fmt.Sprint(l))
		}
		words = append(words, strings.TrimPrefix(strings.Join(where, ".")+": "+d.Msg, ": "))
	}
	return strings.Join(words, "; ")
}

func str(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}

// Failure maps the report to the port's errors.
func (r *report) Failure(key string) *model.Error {
	e := &model.Error{Kind: r.kind(), Status: r.status, RetryAfter: r.after}
	name := r.code
	if name == "" || len(name) > endpoint.MaxName {
		name = r.typ
	}
	return endpoint.Describe(e, r.message, []string{key}, name)
}

func (r *report) kind() model.Kind {
	names, status := r.code+" "+r.typ, r.status
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return model.ErrAuth
	case status == http.StatusTooManyRequests || status == http.StatusPaymentRequired || strings.Contains(names, "rate_limit") || strings.Contains(names, "insufficient_quota"):
		return model.ErrRateLimited
	case status >= 500 || status == http.StatusRequestTimeout || status == http.StatusConflict:
		return model.ErrUnavailable
	case r.code == "tool_use_failed" || r.code == "json_validate_failed": // Groq's status 400 for an answer of the model that is malformed
		return model.ErrUnavailable
	case model.TooLong(names) || model.TooLong(r.message) || status == http.StatusRequestEntityTooLarge:
		return model.ErrContextTooLong
	case status >= 400 || strings.Contains(names, "invalid_request"):
		return model.ErrBadRequest
	}
	return model.ErrUnavailable // an error within an answer
}

package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/aeemesh/aeemesh/agents/model"
)

const (
	maxWords      = 300 // runes of a server's text that are quoted
	maxRetryAfter = 24 * time.Hour
)

// failure maps what went wrong to the port's errors. res is set if the server
// answered with a status of 400 or above.
func (m *Model) failure(ctx context.Context, res *http.Response, err error, key string) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	var r *report
	if errors.As(err, &r) {
		return r.error(0, 0, key)
	}
	if res != nil && res.StatusCode >= 400 {
		body, _ := io.ReadAll(res.Body) // the SDK has read it already
		return parseReport(body).error(res.StatusCode, retryAfter(res.Header, time.Now()), key)
	}
	out := &model.Error{Kind: model.ErrUnavailable, Err: err}
	var request *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		out.Message = fmt.Sprintf("no complete answer within %s", m.cfg.RequestTimeout)
	case errors.Is(err, errTooLarge):
		out.Message = fmt.Sprintf("the answer exceeds the bound of %d bytes", m.cfg.MaxResponse)
	case errors.As(err, &request): // whose own text quotes the whole URL
		out.Message = clean(fmt.Sprintf("cannot reach %s: %s", m.host, request.Err), key)
	default:
		out.Message = clean(err.Error(), key)
	}
	return out
}

// report is what a server says about a failure.
type report struct {
	code, typ, message string
	status             int // where the report itself has one
}

func (r *report) Error() string { return "the server reported an error" }

// reported returns a *report if a document of a status below 400, or an event
// of a stream, tells of an error.
func reported(data []byte) error {
	var doc struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &doc) != nil || len(doc.Error) == 0 || bytes.Equal(doc.Error, []byte("null")) {
		return nil
	}
	return parseReport(data)
}

// parseReport understands {"error": {…}}, {"error": "…"}, {"message": "…"} and
// {"detail": "…"}; of anything else nothing is quoted.
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
	r.code, r.typ = str(fields["code"]), str(fields["type"])
	for _, name := range []string{"message", "detail"} {
		if r.message == "" {
			r.message = str(fields[name])
		}
	}
	if n, err := strconv.Atoi(r.code); err == nil && n >= 400 && n < 600 {
		r.status, r.code = n, ""
	}
	return r
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

func (r *report) error(status int, after time.Duration, key string) *model.Error {
	if status == 0 {
		status = r.status
	}
	e := &model.Error{Kind: r.kind(status), Status: status, RetryAfter: after}
	var parts []string
	// What servers say about a wrong key may quote it in part.
	if e.Kind != model.ErrAuth && r.message != "" {
		parts = append(parts, clean(r.message, key))
	}
	for _, s := range []string{r.code, r.typ} {
		if s != "" && len(s) <= 64 {
			parts = append(parts, clean(s, key))
			break
		}
	}
	e.Message = strings.Join(parts, "; ")
	return e
}

var tooLong = regexp.MustCompile(`(?i)context.?(length|window|size)|prompt is too long|input is too long|too many (input )?tokens|maximum (context|prompt|input)`)

func (r *report) kind(status int) model.Kind {
	names := r.code + " " + r.typ
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return model.ErrAuth
	case status == http.StatusTooManyRequests || strings.Contains(names, "rate_limit") || strings.Contains(names, "insufficient_quota"):
		return model.ErrRateLimited
	case status >= 500 || status == http.StatusRequestTimeout || status == http.StatusConflict:
		return model.ErrUnavailable
	case tooLong.MatchString(names) || tooLong.MatchString(r.message) || status == http.StatusRequestEntityTooLarge:
		return model.ErrContextTooLong
	case status >= 400 || strings.Contains(names, "invalid_request"):
		return model.ErrBadRequest
	}
	return model.ErrUnavailable // an error in the midst of an answer
}

// retryAfter reads Retry-After-Ms and Retry-After, in seconds or as a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	for _, c := range []struct {
		name string
		unit time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		v := h.Get(c.name)
		if v == "" {
			continue
		}
		if n, err := strconv.ParseFloat(v, 64); err == nil && n >= 0 {
			return time.Duration(min(n*float64(c.unit), float64(maxRetryAfter)))
		}
		if at, err := http.ParseTime(v); err == nil {
			return min(max(at.Sub(now), 0), maxRetryAfter)
		}
	}
	return 0
}

var credential = regexp.MustCompile(`(?i)\bbearer\s+\S+|\b(sk|pk|rk|gsk|xai|hf)[-_][A-Za-z0-9_*.\-]{6,}`)

// clean makes a server's text fit for a log line: no key, one line, short.
func clean(s, key string) string {
	if key != "" {
		s = strings.ReplaceAll(s, key, "[key]")
	}
	s = credential.ReplaceAllString(s, "[key]")
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if r := []rune(s); len(r) > maxWords {
		s = string(r[:maxWords]) + "…"
	}
	return s
}

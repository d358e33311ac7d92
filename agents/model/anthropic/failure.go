package anthropic

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// refusal reads an answer with a status of 400 or above.
func refusal(res *http.Response) *report {
	body, _ := io.ReadAll(res.Body) // if it breaks off, the status says enough
	r := parseReport(body)
	r.status, r.after = res.StatusCode, model.RetryAfter(res.Header, time.Now())
	return r
}

// report is the server's report of a failure.
type report struct {
	typ, message, id string
	status           int
	after            time.Duration
}

func (r *report) Error() string { return "the server reported an error" }

// reported returns a *report if a document with a status below 400, or an event of a stream, is an
// error.
func reported(data []byte) error {
	var doc struct{ Type string }
	if json.Unmarshal(data, &doc) != nil || doc.Type != "error" {
		return nil
	}
	return parseReport(data)
}

// parseReport reads {"type": "error", "error": {"type": …, "message": …}, "request_id": …}, and the
// forms {"error": "…"} and {"message": "…"} of gateways. It takes no text from any other form.
func parseReport(body []byte) *report {
	var doc struct {
		Error     json.RawMessage
		Message   json.RawMessage
		RequestID json.RawMessage `json:"request_id"`
	}
	r := &report{}
	if json.Unmarshal(body, &doc) != nil {
		return r
	}
	var inner struct{ Type, Message json.RawMessage }
	if json.Unmarshal(doc.Error, &inner) == nil {
		r.typ, r.message = str(inner.Type), str(inner.Message)
	} else {
		r.message = str(doc.Error)
	}
	if r.message == "" {
		r.message = str(doc.Message)
	}
	if id := str(doc.RequestID); requestID.RE().MatchString(id) {
		r.id = id
	}
	return r
}

var requestID = pattern.Of(`^req_[A-Za-z0-9]{1,60}$`)

func str(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s) // a value that is not a string is not quoted
	return s
}

// Failure maps the report to the port's errors.
func (r *report) Failure(key string) *model.Error {
	e := &model.Error{Kind: r.kind(), Status: r.status, RetryAfter: r.after}
	return endpoint.Describe(e, r.message, []string{key}, r.typ, r.id)
}

var noCredit = pattern.Of(`(?i)credit balance|usage limits?\b`)

// kind classifies a failure by its status, or, in a stream that began with 200, by its type.
func (r *report) kind() model.Kind {
	switch {
	case r.status == http.StatusUnauthorized || r.status == http.StatusForbidden || r.typ == "authentication_error" || r.typ == "permission_error":
		return model.ErrAuth
	case r.status == http.StatusTooManyRequests || r.status == http.StatusPaymentRequired || r.typ == "rate_limit_error" || r.typ == "billing_error":
		return model.ErrRateLimited
	case r.status >= 500 || r.status == http.StatusRequestTimeout || r.status == http.StatusConflict:
		return model.ErrUnavailable
	case r.status == http.StatusRequestEntityTooLarge || r.typ == "request_too_large" || model.TooLong(r.message):
		return model.ErrContextTooLong
	case noCredit.RE().MatchString(r.message):
		return model.ErrRateLimited
	case r.status >= 400 || r.typ == "invalid_request_error" || r.typ == "not_found_error":
		return model.ErrBadRequest
	}
	return model.ErrUnavailable // overloaded_error, api_error, timeout_error
}

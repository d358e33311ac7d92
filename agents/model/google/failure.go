package google

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// report is a failure that the server reports. If the server's text is not the
// API's JSON, Message is the text, and the other members are empty.
type report struct {
	rpcStatus
	status int // of HTTP; an error within an answer has 200
	header http.Header
}

// rpcStatus is the API's form of an error (google.rpc.Status).
type rpcStatus struct {
	Code    int              `json:"code"`
	Message string           `json:"message"`
	Status  string           `json:"status"`
	Details []map[string]any `json:"details"`
}

// Error returns a text without the server's message, which may quote the key.
func (r *report) Error() string { return "the server reported an error" }

// reportOf reads an answer without success. If its body breaks off, only the
// status and the header count.
func reportOf(res *http.Response) *report {
	body, err := io.ReadAll(res.Body)
	if err != nil {
		body = nil
	}
	r := &report{status: res.StatusCode, header: res.Header}
	if said := parseStatus(body); said != nil {
		r.rpcStatus = *said
	} else {
		r.Message = string(body)
	}
	return r
}

// parseStatus returns the error of a document; nil if it has none in the API's
// form.
func parseStatus(doc []byte) *rpcStatus {
	var d struct {
		Error *rpcStatus `json:"error"`
	}
	if json.Unmarshal(doc, &d) != nil {
		return nil
	}
	return d.Error
}

// Failure maps the report to the port's errors.
func (r *report) Failure(secret string) *model.Error {
	status := r.status
	if status < 400 {
		status = 0
		if r.Code >= 400 && r.Code < 600 {
			status = r.Code
		}
	}
	reason, delay := details(r.Details)
	e := &model.Error{Kind: kind(status, r.Status, reason, r.Message), Status: status}
	if e.Kind == model.ErrRateLimited || e.Kind == model.ErrUnavailable {
		if e.RetryAfter = model.RetryAfter(r.header, time.Now()); e.RetryAfter == 0 {
			e.RetryAfter = delay
		}
	}
	var parts []string
	// A text about a wrong key may quote a part of the key. A body in another
	// form than the API's is not quoted either.
	if own := r.Status != "" && !strings.Contains(r.Status, " "); own {
		if e.Kind != model.ErrAuth && r.Message != "" {
			parts = append(parts, model.Quote(r.Message, secret))
		}
		parts = append(parts, model.Quote(r.Status, secret))
	}
	if reason != "" {
		parts = append(parts, model.Quote(reason, secret))
	}
	e.Message = strings.Join(parts, "; ")
	return e
}

// details returns the reason (google.rpc.ErrorInfo) and the delay
// (google.rpc.RetryInfo) of a failure.
func details(list []map[string]any) (reason string, delay time.Duration) {
	for _, d := range list {
		typ, _ := d["@type"].(string)
		switch {
		case strings.HasSuffix(typ, "google.rpc.ErrorInfo"):
			reason, _ = d["reason"].(string)
		case strings.HasSuffix(typ, "google.rpc.RetryInfo"):
			text, _ := d["retryDelay"].(string)
			if parsed, err := time.ParseDuration(text); err == nil {
				delay = min(max(parsed, 0), 24*time.Hour)
			}
		}
	}
	return reason, delay
}

var tooMany = pattern.Of(`(?i)token count.*exceeds|exceeds the maximum number of tokens`)

func kind(status int, name, reason, message string) model.Kind {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden || name == "UNAUTHENTICATED" || name == "PERMISSION_DENIED" ||
		strings.HasPrefix(reason, "API_KEY_"):
		return model.ErrAuth
	case status == http.StatusTooManyRequests || name == "RESOURCE_EXHAUSTED":
		return model.ErrRateLimited
	case status >= 500 || status == http.StatusRequestTimeout || status == http.StatusConflict || status == 499:
		return model.ErrUnavailable
	case tooMany.RE().MatchString(message) || model.TooLong(message) || status == http.StatusRequestEntityTooLarge:
		return model.ErrContextTooLong
	case status >= 400 || name == "INVALID_ARGUMENT" || name == "FAILED_PRECONDITION" || name == "NOT_FOUND":
		return model.ErrBadRequest
	}
	return model.ErrUnavailable
}

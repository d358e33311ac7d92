package google

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/aeemesh/aeemesh/agents/model"
)

// failure converts an error to one of package model.
func (m *Model) failure(ctx context.Context, x *exchange, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	var own *model.Error
	if errors.As(err, &own) {
		return own
	}
	if api, ok := asAPIError(err); ok {
		return report(api, x)
	}
	out := &model.Error{Kind: model.ErrUnavailable, Err: err}
	var request *url.Error
	switch {
	case x.status >= 400:
		out.Status = x.status
		out.Kind = kind(x.status, "", "", "")
	case errors.Is(err, context.DeadlineExceeded):
		out.Message = fmt.Sprintf("no complete answer within %s", m.cfg.RequestTimeout)
	case errors.Is(err, errTooLarge):
		out.Message = fmt.Sprintf("the answer exceeds the bound of %d bytes", m.cfg.MaxResponse)
	case errors.As(err, &request): // its own text quotes the whole URL
		out.Message = model.Quote(fmt.Sprintf("cannot reach %s: %s", m.host, request.Err), x.secret)
	case x.status == 0 && strings.Contains(err.Error(), "tModel:"):
		out.Kind, out.Message = model.ErrBadRequest, "the name of the model has characters that no model's has"
	case x.broken != nil:
		out.Message = model.Quote("the answer broke off: "+err.Error(), x.secret)
	default: // the SDK's text may quote the whole answer
		out.Message = "the answer is not what the API's reference says"
	}
	return out
}

func asAPIError(err error) (genai.APIError, bool) {
	var v genai.APIError
	if errors.As(err, &v) {
		return v, true
	}
	var p *genai.APIError
	if errors.As(err, &p) && p != nil {
		return *p, true
	}
	return v, false
}

// report converts an error of the API (google.rpc.Status).
func report(api genai.APIError, x *exchange) *model.Error {
	status := x.status
	if status < 400 {
		status = 0
		if api.Code >= 400 && api.Code < 600 {
			status = api.Code
		}
	}
	reason, delay := details(api.Details)
	e := &model.Error{Kind: kind(status, api.Status, reason, api.Message), Status: status}
	if e.Kind == model.ErrRateLimited || e.Kind == model.ErrUnavailable {
		if e.RetryAfter = model.RetryAfter(x.received, time.Now()); e.RetryAfter == 0 {
			e.RetryAfter = delay
		}
	}
	var parts []string
	// A text about a wrong key may quote a part of the key. A body in another
	// form than the API's is not quoted either.
	if own := api.Status != "" && !strings.Contains(api.Status, " "); own {
		if e.Kind != model.ErrAuth && api.Message != "" {
			parts = append(parts, model.Quote(api.Message, x.secret))
		}
		parts = append(parts, model.Quote(api.Status, x.secret))
	}
	if reason != "" {
		parts = append(parts, model.Quote(reason, x.secret))
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

var tooMany = regexp.MustCompile(`(?i)token count.*exceeds|exceeds the maximum number of tokens`)

func kind(status int, name, reason, message string) model.Kind {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden || name == "UNAUTHENTICATED" || name == "PERMISSION_DENIED" ||
		strings.HasPrefix(reason, "API_KEY_"):
		return model.ErrAuth
	case status == http.StatusTooManyRequests || name == "RESOURCE_EXHAUSTED":
		return model.ErrRateLimited
	case status >= 500 || status == http.StatusRequestTimeout || status == http.StatusConflict || status == 499:
		return model.ErrUnavailable
	case tooMany.MatchString(message) || model.TooLong(message) || status == http.StatusRequestEntityTooLarge:
		return model.ErrContextTooLong
	case status >= 400 || name == "INVALID_ARGUMENT" || name == "FAILED_PRECONDITION" || name == "NOT_FOUND":
		return model.ErrBadRequest
	}
	return model.ErrUnavailable
}

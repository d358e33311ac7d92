package outbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/cert"
	"github.com/aeemesh/aeemesh/envelope/pause"
)

// maxRetryAfter is the longest delay that a call waits for a retry, if an
// endpoint asks for one.
const maxRetryAfter = 10 * time.Second

// Request is one call of a tool.
type Request struct {
	Method string
	URL    *url.URL
	Header http.Header // the tool's own; nil: none
	Body   []byte      // nil: none
	Type   string      // of Body, such as application/json

	// Key is sent as Idempotency-Key, if set. It is the same when a call is
	// repeated.
	Key string

	// Again permits the call to be repeated. If the answer is 429 or 503 with a
	// Retry-After of at most 10 seconds, the call is then retried once.
	Again bool
}

// Reason is why a call failed.
type Reason string

// The reasons.
const (
	ReasonRefused     Reason = "refused"     // by the policy; the call was not made, or not completed
	ReasonCredential  Reason = "credential"  // it could not be read; the call was not made
	ReasonUnreachable Reason = "unreachable" // no connection; the call was not made
	ReasonLimited     Reason = "limited"     // the endpoint answered 429; the call had no effect
	ReasonStatus      Reason = "status"      // the endpoint answered with another status than 2xx
	ReasonTimeout     Reason = "timeout"     // it is not known whether the call had an effect
	ReasonBroken      Reason = "broken"      // the connection broke, the answer is malformed, or its redirect could not be followed; the effect is not known either
	ReasonTooLarge    Reason = "too_large"   // the answer is too large
)

// Failure is a call that failed.
type Failure struct {
	Reason  Reason
	Status  int    // of the answer, if there is one
	NotMade bool   // the endpoint got no request of the call
	Message string // for a model: truncated, cleaned, without addresses and credentials
	Err     error  // for the operator's log; may be nil
}

// Error returns the message, and the cause if there is one.
func (f *Failure) Error() string {
	if f.Err != nil {
		return f.Message + ": " + f.Err.Error()
	}
	return f.Message
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Call makes a call with a client of [Policy.Client] and reads its answer, of status 2xx.
// The error is a [*Failure], or the context's own if that ended the call.
func (a Access) Call(ctx context.Context, client *http.Client, r Request) (*Answer, error) {
	answer, wait, err := a.once(ctx, client, r)
	if err == nil || !r.Again || wait <= 0 || wait > maxRetryAfter {
		return answer, err
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return nil, err
	}
	if !pause.For(ctx, wait) {
		return nil, ctx.Err()
	}
	answer, _, err = a.once(ctx, client, r)
	var f *Failure
	if errors.As(err, &f) {
		f.NotMade = false // the first request was answered
	}
	return answer, err
}

// once makes the call once. The duration is the delay that the endpoint asks
// for.
func (a Access) once(ctx context.Context, client *http.Client, r Request) (*Answer, time.Duration, error) {
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL.String(), body)
	if err != nil {
		return nil, 0, &Failure{Reason: ReasonBroken, Message: "the request cannot be made", Err: Cause(err)}
	}
	if r.Header != nil {
		req.Header = r.Header.Clone()
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", r.Type)
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json, text/*;q=0.8, */*;q=0.1")
	}
	req.Header.Set("User-Agent", "aeemesh")
	if r.Key != "" {
		req.Header.Set("Idempotency-Key", r.Key)
	}
	redirected := false
	resp, err := noteRedirects(client, &redirected).Do(req)
	if err != nil {
		return nil, 0, a.failure(ctx, err, redirected)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, 0, a.failure(ctx, &url.Error{Op: "read", Err: errors.Join(errPartly, Cause(err))}, redirected)
	}
	answer := &Answer{Status: resp.StatusCode, Type: resp.Header.Get("Content-Type"), Body: data, secrets: a.Secrets.Redactor()}
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, 0, &Failure{Reason: ReasonBroken, Status: resp.StatusCode, Message: "the answer is encoded in a way that was not asked for"}
	}
	if resp.StatusCode/100 == 2 {
		return answer, 0, nil
	}
	f := &Failure{Reason: ReasonStatus, Status: resp.StatusCode, Message: fmt.Sprintf("the server answered %d", resp.StatusCode)}
	if text := http.StatusText(resp.StatusCode); text != "" {
		f.Message += " " + text
	}
	wait := time.Duration(0)
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		if wait = retryAfter(resp.Header.Get("Retry-After"), time.Now()); wait > 0 {
			f.Message += fmt.Sprintf("; it may be asked again in %d s", (wait+time.Second-1)/time.Second)
		}
		if resp.StatusCode == http.StatusTooManyRequests && !redirected {
			f.Reason = ReasonLimited
		}
	}
	if redirected {
		f.Message += afterRedirect
	}
	if words := answer.words(); words != "" {
		f.Message += ": " + strconv.Quote(words)
	}
	return nil, wait, f
}

// noteRedirects returns a copy of a client that sets redirected when a server answers with a
// redirect. That server may have done the call, whatever becomes of the redirect.
func noteRedirects(client *http.Client, redirected *bool) *http.Client {
	own := *client
	own.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		*redirected = true
		return client.CheckRedirect(req, via)
	}
	return &own
}

// authorities is the setting with the certificate authorities of servers.
const authorities = "outbound.ca_file"

// afterRedirect ends the message of a failure that came after a redirect.
const afterRedirect = "; a redirect led there, and the call may have been done"

// errPartly is the error of an answer whose body ended too soon.
var errPartly = errors.New("the answer broke off")

// failure converts an error of net/http to a Failure whose message a model may
// see.
func (a Access) failure(ctx context.Context, err error, redirected bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	cause := a.Secrets.Redactor().Error(Cause(err))
	f := &Failure{Reason: ReasonBroken, Message: "the connection broke; whether the call was done is not known", Err: cause}
	var op *net.OpError
	var dns *net.DNSError
	var timeout net.Error
	fault, hint := cert.Fault(err, authorities)
	switch {
	case errors.Is(err, ErrRefused):
		f.Reason, f.Message = ReasonRefused, "the operator's policy does not allow what this call would reach"
	case errors.Is(err, ErrTooLarge):
		f.Reason, f.Message = ReasonTooLarge, "the answer is larger than allowed"
	case errors.Is(err, ErrCredential):
		f.Reason, f.Message = ReasonCredential, "its credential could not be read"
	case errors.As(err, &dns):
		f.Reason, f.Message = ReasonUnreachable, "the host is not known"
	case fault != "":
		f.Reason, f.Message, f.Err = ReasonUnreachable, fault, fmt.Errorf("%w: %s", cause, hint)
	case errors.As(err, &op) && op.Op == "dial":
		f.Reason, f.Message = ReasonUnreachable, "the server cannot be reached"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		f.Reason, f.Message = ReasonTimeout, "no answer in time; whether the call was done is not known"
	case errors.Is(err, errPartly):
		f.Message = "the answer broke off; the call was probably done"
	}
	f.sayWhetherMade(redirected)
	return f
}

// sayWhetherMade completes the message of a failure before the request was sent. If a
// redirect led there, only the redirect's request was not sent.
func (f *Failure) sayWhetherMade(redirected bool) {
	switch {
	case f.Reason != ReasonRefused && f.Reason != ReasonCredential && f.Reason != ReasonUnreachable:
	case redirected:
		f.Reason = ReasonBroken
		f.Message += afterRedirect
	default:
		if f.NotMade = true; f.Reason != ReasonRefused {
			f.Message += "; the call was not made"
		}
	}
}

// retryAfter parses the header Retry-After (RFC 9110, section 10.2.3): seconds,
// or a date. An invalid value is 0.
func retryAfter(text string, now time.Time) time.Duration {
	text = strings.TrimSpace(text)
	if n, err := strconv.Atoi(text); err == nil {
		return time.Duration(min(max(n, 0), 1<<20)) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

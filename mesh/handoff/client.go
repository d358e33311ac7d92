package handoff

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/cert"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// ErrPlaintext: the URL is not https.
var ErrPlaintext = errors.New("a handoff goes over TLS only")

// ClientOptions configure a [Client]. The zero value trusts the system's certificates.
type ClientOptions struct {
	// TLS configures the connection: the roots to trust, and the client's certificate.
	// Verification cannot be turned off.
	TLS *tls.Config
	// Bearer is sent with each request. It is called for each one.
	Bearer func() (string, error)
	// Idle is how long the target may be silent. Default 30 seconds.
	Idle time.Duration
}

// A Client sends runs to one receiver. Its methods may be called from many
// goroutines.
type Client struct {
	base   string
	http   *http.Client
	bearer func() (string, error)
	idle   time.Duration
}

// NewClient makes a client of the receiver at a URL: https, with a host, and the
// path below which the receiver is, if any. It does no I/O.
func NewClient(target string, opts ClientOptions) (*Client, error) {
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return nil, fmt.Errorf("handoff to %q: %w", target, err)
	case u.Scheme != "https":
		return nil, fmt.Errorf("handoff to %q: %w: the URL must begin with https://", target, ErrPlaintext)
	case u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("handoff to %q: want https://host[:port][/path], and nothing else", target)
	}
	conf := opts.TLS.Clone()
	if conf == nil {
		conf = &tls.Config{}
	}
	conf.MinVersion = max(conf.MinVersion, tls.VersionTLS12)
	if conf.InsecureSkipVerify {
		return nil, fmt.Errorf("handoff to %q: the target's certificate must be verified", target)
	}
	idle := opts.Idle
	if idle <= 0 {
		idle = DefaultIdle
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:       conf,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: idle,
		IdleConnTimeout:       time.Minute,
		ForceAttemptHTTP2:     true,
	}
	return &Client{
		base: strings.TrimSuffix(u.String(), "/") + Path, bearer: opts.Bearer, idle: idle,
		http: &http.Client{
			Transport: transport,
			// A redirect could lead anywhere, with the run.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// About requests the receiver's description of itself.
func (c *Client) About(ctx context.Context) (About, error) {
	var about About
	if err := c.do(ctx, http.MethodGet, "", "", nil, &about); err != nil {
		return About{}, err
	}
	if about.Platform == "" {
		return About{}, fmt.Errorf("handoff to %s: its answer names no platform", c.base)
	}
	return about, nil
}

// Send streams a document to the receiver, which stages it. It goes no faster
// than the receiver reads. When ctx ends, the stream ends in a handoff_error.
func (c *Client) Send(ctx context.Context, token string, doc []byte) (Status, error) {
	// The stream outlives ctx, so that its last line can say why it ends.
	request, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWord, cancel) })()
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := transfer.Write(ctx, w, token, doc)
		w.Close() // a stream without handoff_complete is void
		written <- err
	}()
	// A silent target must not block Send for ever, even if ctx does not end.
	quiet := time.AfterFunc(c.idle, cancel)
	defer quiet.Stop()
	body := &patient{r, func() { quiet.Reset(c.idle) }}
	status, err := Status{}, error(nil)
	req, err := c.request(request, http.MethodPost, "", "", io.NopCloser(body))
	if err == nil {
		req.Header.Set("Content-Type", transfer.MediaType)
		err = c.send(req, http.StatusCreated, &status)
	}
	r.CloseWithError(errors.New("the target has answered"))
	sent := <-written
	switch {
	case ctx.Err() != nil:
		return Status{}, fmt.Errorf("handoff to %s: %w", c.base, context.Cause(ctx))
	case err != nil:
		return Status{}, err
	case sent != nil:
		return Status{}, fmt.Errorf("handoff to %s: %w", c.base, sent)
	}
	return status, nil
}

// lastWord bounds how long an abandoned stream may take to send its last line.
const lastWord = 2 * time.Second

// Commit tells the receiver that the source has released the run; request is signed for
// [ActionCommit]. The phase of the Status is the receiver's final decision: accepted, running or
// refused.
func (c *Client) Commit(ctx context.Context, id, request string) (Status, error) {
	return c.ask(ctx, http.MethodPost, "/"+id+"/commit", request)
}

// Refuse asks the receiver never to run it; request is signed for [ActionRefuse]. The phase of the
// Status is final, as with Commit.
func (c *Client) Refuse(ctx context.Context, id, request string) (Status, error) {
	return c.ask(ctx, http.MethodDelete, "/"+id, request)
}

func (c *Client) ask(ctx context.Context, method, path, request string) (status Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.idle)
	defer cancel()
	err = c.do(ctx, method, path, request, nil, &status)
	return status, err
}

// Command passes a command on; request is signed for [ActionCommand].
func (c *Client) Command(ctx context.Context, id, request string, command []byte) (answer json.RawMessage, err error) {
	err = c.do(ctx, http.MethodPost, "/"+id+"/command", request, bytes.NewReader(command), &answer)
	return answer, err
}

// Replies calls give with the run's replies whose number is above after, until the terminal one,
// and returns nil then; request is signed for [ActionReplies]. It fails when the connection is
// lost, or when nothing arrives for too long. Then the caller calls it again with the last number.
func (c *Client) Replies(ctx context.Context, id, request string, after uint64, give func(Reply) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := c.request(ctx, http.MethodGet, "/"+id+"/replies?after="+strconv.FormatUint(after, 10), request, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("replies from %s: %w", c.base, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.failure(resp)
	}
	quiet := time.AfterFunc(c.idle, func() { cancel(fmt.Errorf("%w: nothing was heard for %v", transfer.ErrTimeout, c.idle)) })
	defer quiet.Stop()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxReply)
	for lines.Scan() {
		quiet.Reset(c.idle)
		var reply Reply
		if err := json.Unmarshal(lines.Bytes(), &reply); err != nil {
			return fmt.Errorf("replies from %s: %w", c.base, err)
		}
		if reply.Seq == 0 {
			continue // a sign of life
		}
		if err := give(reply); err != nil || reply.Last {
			return err
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("replies from %s: %w", c.base, cause)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("replies from %s: %w", c.base, err)
	}
	return fmt.Errorf("replies from %s: %w", c.base, io.ErrUnexpectedEOF)
}

// maxReply bounds one line of replies: an envelope in base64.
const maxReply = 16 << 20

func (c *Client) do(ctx context.Context, method, path, request string, body io.Reader, out any) error {
	req, err := c.request(ctx, method, path, request, body)
	if err != nil {
		return err
	}
	return c.send(req, http.StatusOK, out)
}

func (c *Client) request(ctx context.Context, method, path, request string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("handoff to %s: %w", c.base, err)
	}
	if request != "" {
		req.Header.Set(HeaderRequest, request)
	}
	if c.bearer != nil {
		token, err := c.bearer()
		if err != nil {
			return nil, fmt.Errorf("handoff to %s: bearer token: %w", c.base, err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

func (c *Client) send(req *http.Request, want int, out any) error {
	resp, err := c.http.Do(req)
	switch what, hint := cert.Fault(err, "--handoff-ca"); {
	case what != "":
		return c.unanswered(err, "%s: %s", what, hint)
	case req.Context().Err() != nil: // the caller knows why it ended
		return fmt.Errorf("handoff: %w", err)
	case err != nil:
		return c.unanswered(err, "the receiver cannot be reached")
	}
	defer resp.Body.Close()
	if resp.StatusCode != want {
		return c.failure(resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxCommand)).Decode(out); err != nil {
		return c.unanswered(err, "the answer is not that of a receiver")
	}
	return nil
}

// unanswered returns the error for a receiver that gives no answer, or an answer that no receiver gives.
// The message is for the peer that asked for the transfer; cause, which may name addresses or
// quote the answer, is for the log.
func (c *Client) unanswered(cause error, format string, args ...any) error {
	return envelope.Errorf(envelope.CodeUnavailable, format, args...).WithCause(fmt.Errorf("handoff to %s: %w", c.base, cause))
}

// failure reads the error in a receiver's answer.
func (c *Client) failure(resp *http.Response) error {
	var p problem
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(body, &p) != nil || p.Code == "" {
		return c.unanswered(fmt.Errorf("%.100q", body), "the receiver answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	switch p.Code {
	case "unknown":
		return fmt.Errorf("handoff to %s: %w", c.base, ErrUnknown)
	case "not_staged":
		return fmt.Errorf("handoff to %s: %w", c.base, ErrNotStaged)
	case "busy":
		return c.unanswered(ErrBusy, "the receiver has no room for now")
	}
	return fmt.Errorf("handoff to %s: %w", c.base, transfer.RemoteError(p.Code, p.Message))
}

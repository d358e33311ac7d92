package handoff_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

func TestHandoffThatIsBrokenOff(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	var whole bytes.Buffer
	if err := transfer.Write(context.Background(), &whole, x.token, x.doc); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(whole.String(), "\n")
	for name, stream := range map[string]string{
		"cut off":       strings.Join(lines[:len(lines)-2], ""),
		"handoff_error": strings.Join(lines[:2], "") + `{"type":"handoff_error","seq":2,"code":"aborted","message":"no"}` + "\n",
		"half a line":   whole.String()[:len(lines[0])+20],
	} {
		p := newPlatform(t)
		x := p.pack()
		var own bytes.Buffer
		if err := transfer.Write(context.Background(), &own, x.token, x.doc); err != nil {
			t.Fatal(err)
		}
		init, _, _ := strings.Cut(own.String(), "\n")
		resp := p.post(strings.Replace(stream, strings.TrimSuffix(lines[0], "\n"), init, 1))
		equal(t, name, resp.StatusCode, http.StatusUnprocessableEntity)
		equal(t, name, p.records(), "refused small")
		if p.run(x.run) != nil {
			t.Errorf("%s: there is a run", name)
		}
	}
	resp := p.post(strings.Replace(whole.String(), "hi hi", "hi ho", 1))
	equal(t, "another content", resp.StatusCode, http.StatusUnprocessableEntity)
	equal(t, "records", p.records(), "refused small")
	if status, err := p.commit(x.id); err != nil || status.Phase != state.PhaseRefused {
		t.Errorf("a commit of it: %+v, %v", status, err)
	}
	if p.run(x.run) != nil || len(p.kicked) > 0 {
		t.Error("there is a run")
	}
}

// post sends a body as it is.
func (p *platform) post(body string) *http.Response {
	p.t.Helper()
	resp, err := p.server.Client().Post(p.server.URL+handoff.Path, transfer.MediaType, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestHandoffIsAbortedByItsSender(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	p.fail = func(phase state.Phase, done bool) {
		if phase == state.PhaseReceiving && done {
			cancel(fmt.Errorf("%w: changed my mind", transfer.ErrAborted))
		}
	}
	big := p.pack(func(c *state.Checkpoint, _ *transfer.Grant) {
		for range 100 {
			c.Doc.Conversation = append(c.Doc.Conversation, c.Doc.Conversation[0])
		}
	})
	if _, err := p.client.Send(ctx, big.token, big.doc); !errors.Is(err, transfer.ErrAborted) {
		t.Error(err)
	}
	if status, err := p.refuse(big.id); err != nil || status.Phase != state.PhaseRefused {
		t.Errorf("%+v, %v", status, err)
	}
	equal(t, "records", p.records(), "refused small")
}

func TestHandoffNeedsTLS(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	for _, url := range []string{"http://" + p.server.Listener.Addr().String(), "ftp://x", "berlin:7443", ""} {
		if _, err := handoff.NewClient(url, handoff.ClientOptions{}); !errors.Is(err, handoff.ErrPlaintext) {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, url := range []string{"https://", "https://u:p@x", "https://x?y", "https://x#y"} {
		if _, err := handoff.NewClient(url, handoff.ClientOptions{}); err == nil {
			t.Errorf("%q passed", url)
		}
	}
	if _, err := handoff.NewClient(p.server.URL, handoff.ClientOptions{TLS: &tls.Config{InsecureSkipVerify: true}}); err == nil {
		t.Error("verification was turned off")
	}
	// A handler in a server without TLS refuses whatever comes.
	plain := httptest.NewServer(handoff.Handler(p.receiver, handoff.HandlerOptions{}))
	defer plain.Close()
	x := p.pack()
	var body bytes.Buffer
	if err := transfer.Write(context.Background(), &body, x.token, x.doc); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(plain.URL+handoff.Path, transfer.MediaType, &body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	equal(t, "status", resp.StatusCode, http.StatusUpgradeRequired)
	equal(t, "records", p.records(), "")
	// A target with an unknown certificate gets no request.
	if _, err := p.newClient(handoff.ClientOptions{}).Send(context.Background(), x.token, x.doc); err == nil || !strings.Contains(err.Error(), "signed it with --handoff-ca") {
		t.Errorf("an unknown certificate: %v", err)
	}
	equal(t, "records", p.records(), "")
}

func TestHandoffBearer(t *testing.T) {
	t.Parallel()
	secret := "s3cret"
	p := newPlatform(t, func(_ *handoff.ReceiverConfig, o *handoff.HandlerOptions) {
		o.Bearer = func() (string, error) { return secret, nil }
	})
	x := p.pack()
	if _, err := p.send(x); err == nil || !strings.Contains(err.Error(), "401") && !strings.Contains(err.Error(), "bearer") {
		t.Errorf("without: %v", err)
	}
	equal(t, "records", p.records(), "")
	secret = "" // its file is empty
	if _, err := p.send(x); err == nil {
		t.Error("without one, where none is set: it is accepted")
	}
	secret = "s3cret"
	with := p.newClient(handoff.ClientOptions{TLS: p.trusting(), Bearer: func() (string, error) { return "s3cret", nil }})
	if _, err := with.Send(context.Background(), x.token, x.doc); err != nil {
		t.Error(err)
	}
}

func TestHandoffRequestsAreSigned(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	stranger, _, err := sign.NewKey("berlin-1", sign.Ed25519, entity)
	if err != nil {
		t.Fatal(err)
	}
	other := p.trust("other", "agent.y")
	make := func(s *sign.Signer, change func(*transfer.Request)) string {
		r := transfer.Request{Handoff: x.id, Issuer: entity, Target: here, Action: handoff.ActionCommit, Issued: p.now}
		change(&r)
		text, err := r.Sign(s)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, request := range map[string]string{
		"none":             "",
		"the token":        x.token,
		"another's key":    make(stranger, func(*transfer.Request) {}),
		"another's word":   make(other, func(r *transfer.Request) { r.Issuer = "agent.y" }),
		"another action":   make(p.signer, func(r *transfer.Request) { r.Action = handoff.ActionStatus }),
		"another handoff":  make(p.signer, func(r *transfer.Request) { r.Handoff = newID(t) }),
		"another platform": make(p.signer, func(r *transfer.Request) { r.Target = "rome" }),
		"old":              make(p.signer, func(r *transfer.Request) { r.Issued = r.Issued.Add(-2 * time.Minute) }),
	} {
		if _, err := p.client.Commit(ctx, x.id, request); err == nil {
			t.Errorf("%s: committed", name)
		}
	}
	equal(t, "records", p.records(), "staged large")
	unknown := newID(t)
	if _, err := p.client.Commit(ctx, unknown, make(p.signer, func(r *transfer.Request) { r.Handoff = unknown })); !errors.Is(err, handoff.ErrUnknown) {
		t.Errorf("an unknown handoff: %v", err)
	}
	if status, err := p.client.Status(ctx, x.id, make(p.signer, func(r *transfer.Request) { r.Action = handoff.ActionStatus })); err != nil || status.Phase != state.PhaseStaged {
		t.Errorf("status %+v, %v", status, err)
	}
}

// A target that says nothing is given up, and so is a source.
func TestHandoffSilence(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, func(c *handoff.ReceiverConfig, o *handoff.HandlerOptions) {
		c.Idle = 20 * time.Millisecond
		o.Beat = time.Hour
	})
	x := p.pack()
	r, w := io.Pipe()
	go func() {
		var b bytes.Buffer
		_ = transfer.Write(context.Background(), &b, x.token, x.doc)
		line, _, _ := bytes.Cut(b.Bytes(), []byte("\n"))
		_, _ = w.Write(append(line, '\n')) // and then nothing
	}()
	resp, err := p.server.Client().Post(p.server.URL+handoff.Path, transfer.MediaType, r)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode < 400 {
			t.Errorf("status %s", resp.Status)
		}
	}
	w.Close()
	deadline := time.Now().Add(10 * time.Second)
	for p.records() != "refused small" && time.Now().Before(deadline) {
		tick := time.NewTimer(time.Millisecond)
		<-tick.C
	}
	equal(t, "records", p.records(), "refused small")

	// Another platform, for a busy machine may pause for longer than this one waits.
	p = newPlatform(t, func(_ *handoff.ReceiverConfig, o *handoff.HandlerOptions) { o.Beat = time.Hour })
	y := p.pack()
	if _, err := p.send(y); err != nil {
		t.Fatal(err)
	}
	if _, err := p.commit(y.id); err != nil {
		t.Fatal(err)
	}
	hasty := p.newClient(handoff.ClientOptions{TLS: p.trusting(), Idle: 20 * time.Millisecond})
	err = hasty.Replies(context.Background(), y.id, p.request(y.id, handoff.ActionReplies), 0, func(handoff.Reply) error { return nil })
	if err == nil {
		t.Error("replies without an end")
	}
}

func TestHandoffBusy(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, func(c *handoff.ReceiverConfig, _ *handoff.HandlerOptions) { c.Open = 1 })
	held, release := make(chan struct{}), make(chan struct{})
	p.fail = func(phase state.Phase, done bool) {
		if phase == state.PhaseReceiving && !done {
			close(held)
			<-release
		}
	}
	x := p.pack()
	first := make(chan error, 1)
	go func() { _, err := p.send(x); first <- err }()
	<-held
	if _, err := p.send(p.pack()); !errors.Is(err, handoff.ErrBusy) {
		t.Errorf("a second stream: %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

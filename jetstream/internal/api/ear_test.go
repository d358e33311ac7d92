package api_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A connection whose socket takes nothing keeps its lock while it writes. The requests of other
// connections of the process go on.
func TestABlockedConnectionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	srv, line := natstest.Run(t, natsd.Config{}), natstest.NewCable(t)
	blocked := natstest.Conn(t, srv, nats.SetCustomDialer(line))
	_, forget := api.UntilDenied(t.Context(), blocked, "x")
	t.Cleanup(forget)
	line.Block(true)
	stuck := make(chan struct{})
	go func() {
		defer close(stuck)
		for line.Blocked() { // until the lock is held, and then in it
			_ = blocked.Publish("x", bytes.Repeat([]byte("x"), 64<<10))
		}
	}()
	for range 3 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, forget := api.UntilDenied(t.Context(), natstest.Conn(t, srv), "x")
			forget()
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatal("a request waits for another connection")
		}
	}
	line.Block(false)
	<-stuck
}

// A call that asks JetStream hears that it may not, and is not ended because another request of
// the same connection may not.
func TestAskingHearsOfItsOwnDenialAlone(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "u", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"$JS.API.STREAM.INFO.>"}}}},
	}})
	js, err := natsjs.New(natstest.Conn(t, srv, nats.UserInfo("u", "p")))
	if err != nil {
		t.Fatal(err)
	}
	other := js.Conn().LastError
	_, err = api.Asking(t.Context(), js, `INFO"`, func(ctx context.Context) (*natsjs.AccountInfo, error) {
		if err := js.Conn().Publish("$JS.API.STREAM.INFO.other", nil); err != nil {
			return nil, err
		}
		for other() == nil {
			if err := js.Conn().FlushTimeout(10 * time.Second); err != nil {
				return nil, err
			}
		}
		return js.AccountInfo(ctx)
	})
	if err != nil {
		t.Errorf("its own request is permitted: %v", err)
	}
	_, err = api.Asking(t.Context(), js, `STREAM.INFO.own"`, func(ctx context.Context) (natsjs.Stream, error) { return js.Stream(ctx, "own") })
	if !errors.Is(err, api.ErrDenied) {
		t.Errorf("its own request is not permitted: %v", err)
	}
}

package mesh_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

const theirInbox = "_INBOX.them"

// templatesWork has a user with these permissions publish a template of the reviewer, learn, say
// so on the bus, and change what was learned, as an operator does who approves a key. Each is an
// error if the server has refused it.
func templatesWork(t *testing.T, p perms.Permissions) (published, learned, told error) {
	t.Helper()
	p.Subscribe = append(slices.Clone(p.Subscribe), theirInbox+".>")
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "user", Password: "u", Permissions: serverPermissions(p)}, {Name: "admin", Password: "a"},
	}})
	r := &durableRig{rig: &rig{t, srv, natstest.Conn(t, srv, nats.UserInfo("admin", "a"))}}
	if _, err := jetstream.Apply(t.Context(), r.js(r.nc), jetstream.Options{Map: r.m}); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 100)
	nc := natstest.Conn(t, srv, nats.UserInfo("user", "u"), nats.CustomInboxPrefix(theirInbox), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		refused <- err
	}))
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	does := func(f func(ctx context.Context) error) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- f(ctx) }()
		select {
		case err := <-done:
			return err
		case err := <-refused:
			cancel()
			<-done
			return err
		}
	}
	templates, pools := jetstream.NewTemplates(js, r.m), jetstream.NewPools(js, r.m)
	published = does(func(ctx context.Context) error {
		if err := templates.Create(ctx, reviewer, "v1", []byte("{}")); err != nil {
			return err
		}
		_, err := templates.Get(ctx, reviewer, "v1")
		return err
	})
	learned = does(func(ctx context.Context) error {
		revision, err := pools.Swap(ctx, reviewer, "review", []byte("{}"), 0)
		if err == nil {
			_, err = pools.Swap(ctx, reviewer, "review", []byte(`{"approved":true}`), revision)
		}
		if err == nil {
			_, _, err = pools.OptOuts(ctx, reviewer)
		}
		if err == nil {
			_, err = pools.SwapOptOuts(ctx, reviewer, []byte("{}"), 0)
		}
		return err
	})
	bus, err := r.m.Bus("sdsi." + reviewer)
	if err != nil {
		t.Fatal(err)
	}
	events := r.listen(bus)
	told = does(func(ctx context.Context) error {
		if err := nc.Publish(bus, []byte("{}")); err != nil {
			return err
		}
		select {
		case <-events:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	return published, learned, told
}

func TestPermissionsForTemplatesSufficeAndNoneIsTooMany(t *testing.T) {
	t.Parallel()
	p, err := perms.Templates(subject.Map{}, reviewer)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		published, learned, told := templatesWork(t, p)
		if err := errors.Join(published, learned, told); err != nil {
			t.Error(err)
		}
	})
	for i, s := range p.Publish {
		less := p
		less.Publish = slices.Delete(slices.Clone(p.Publish), i, i+1)
		t.Run("without "+s, func(t *testing.T) {
			t.Parallel()
			published, learned, told := templatesWork(t, less)
			if err := errors.Join(published, learned, told); err == nil || !strings.Contains(strings.ToLower(err.Error()), "permission") {
				t.Errorf("%v", err)
			}
		})
	}
}

// Who changes what an agent has learned, as by approving a key, needs an authorization (SDSI 7): a
// sender, a viewer and another agent's worker have none.
func TestOthersCannotChangeWhatAnAgentHasLearned(t *testing.T) {
	t.Parallel()
	m := subject.Map{}
	sender, errSender := perms.Client(m, theirInbox, reviewer)
	events, errEvents := perms.TemplateEvents(m, reviewer)
	other, errOther := perms.Templates(m, helper)
	worker, errWorker := perms.Worker(m, helper)
	for name, p := range map[string]perms.Permissions{
		"a sender":               both(t, sender, errSender, events, errEvents),
		"a viewer":               perms.Viewer(m, theirInbox),
		"another agent's worker": both(t, other, errOther, worker, errWorker),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			published, learned, told := templatesWork(t, p)
			for what, err := range map[string]error{"publishes": published, "learns": learned, "tells": told} {
				if !errors.Is(err, nats.ErrPermissionViolation) {
					t.Errorf("it %s: %v", what, fmt.Sprint(err))
				}
			}
		})
	}
}

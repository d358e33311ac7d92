package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// teamWorks has one worker call another over both lanes, cancel what it called,
// and hand a task over, each with permissions of its own. It says what the server
// refused.
func teamWorks(t *testing.T, caller, callee perms.Permissions) error {
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "caller", Password: "c", Permissions: serverPermissions(caller)},
		{Name: "helper", Password: "h", Permissions: serverPermissions(callee)},
		{Name: "admin", Password: "a"},
	}})
	r := &durableRig{rig: &rig{t, srv, natstest.Conn(t, srv, nats.UserInfo("admin", "a"))}}
	if _, err := jetstream.Apply(t.Context(), r.js(r.nc), jetstream.Options{Map: r.m, Entities: []string{lead, helper}}); err != nil {
		t.Fatal(err)
	}
	pings := r.listen("$SRV.PING." + subject.ServiceName(helper) + ".*")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	refused := func(name string) nats.Option {
		return nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { cancel(fmt.Errorf("%s: %w", name, err)) })
	}
	var conns []*nats.Conn
	var handlers sync.WaitGroup // a cancel that the server refuses outlives the draining
	defer handlers.Wait()
	serve := func(name, entity string, handler mesh.HandlerFunc) func() {
		nc := natstest.Conn(t, srv, nats.UserInfo(name, name[:1]), nats.CustomInboxPrefix("_INBOX_"+name), refused(name))
		conns = append(conns, nc)
		node := r.laneOn(nc, mesh.Config{Drain: time.Second}, fenced)
		serving, stop := context.WithCancel(context.Background())
		var wait sync.WaitGroup
		wait.Go(func() {
			_ = node.Serve(serving, mesh.Agent{Entity: entity, Concurrency: 8, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				handlers.Add(1)
				defer handlers.Done()
				return handler(ctx, task)
			})})
		})
		return func() { stop(); wait.Wait() }
	}
	defer serve("helper", helper, func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if string(task.Envelope.Payload) == `{"wait":true}` {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return task.Envelope.Payload, nil
	})()
	defer serve("caller", lead, func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if string(task.Envelope.Payload) == `{"hand":true}` {
			return task.Delegate(ctx, mesh.Delegation{To: helper})
		}
		for _, live := range []bool{true, false} {
			if _, err := task.Call(ctx, mesh.Call{To: helper, Key: fmt.Sprint("one/", live), Live: live}); err != nil {
				return nil, err
			}
			within, stop := context.WithCancel(ctx)
			begun := func(string, bool) {
				if !live {
					stop()
					return
				}
				go func() {
					defer stop()
					select {
					case <-pings: // the worker that has the call is watched
					case <-within.Done():
					}
				}()
			}
			_, err := task.Call(within, mesh.Call{To: helper, Key: fmt.Sprint("two/", live), Live: live, Payload: json.RawMessage(`{"wait":true}`), Begun: begun})
			stop()
			if err == nil {
				return nil, envelope.Errorf(envelope.CodeInternal, "what was broken off has ended")
			}
		}
		return task.Envelope.Payload, nil
	})()
	hears := func() error {
		queue := jetstream.NewQueue(r.js(r.nc), r.m)
		for ctx.Err() == nil {
			if ok, err := queue.Served(ctx, helper); ok && err == nil {
				return nil
			}
		}
		return context.Cause(ctx)
	}
	client := r.laneOn(natstest.Conn(t, srv, nats.UserInfo("admin", "a")), mesh.Config{Entity: ada})
	work := func() error {
		if err := hears(); err != nil {
			return err
		}
		for _, do := range []string{`{"call":true}`, `{"hand":true}`} {
			task := requiring(newTask(lead, "lead.work", do), `{"timeout_ms":60000}`)
			if _, _, err := client.Perform(ctx, task, mesh.SubmitOptions{}, mesh.ResultOptions{}); err != nil {
				return fmt.Errorf("durable %s: %w", do, err)
			}
		}
		for _, do := range []string{`{"hand":true}`} {
			if _, err := client.Send(ctx, requiring(newTask(lead, "lead.work", do), `{"timeout_ms":60000}`), mesh.SendOptions{}); err != nil {
				return fmt.Errorf("live %s: %w", do, err)
			}
		}
		return nil
	}
	err := work()
	for _, nc := range conns { // what was refused a connection knows before it tells of it
		settle(t, nc)
		if err := nc.LastError(); isErr(err, nats.ErrPermissionViolation) {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// What a caller, and who takes over, is said to need suffices over both lanes,
// and each part of it is needed.
func TestPermissionsToCallAndToTakeOverSufficeAndNoneIsTooMany(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	worker := func(entity, inbox string) perms.Permissions {
		live, errA := perms.Worker(subject.Map{}, entity, "_INBOX_caller")
		lane, errB := perms.DurableWorker(subject.Map{}, entity, inbox)
		return both(t, live, errA, lane, errB)
	}
	calls, err := perms.Call(subject.Map{}, true, helper, ada)
	if err != nil {
		t.Fatal(err)
	}
	takes, err := perms.Takeover(subject.Map{}, lead)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "to call", calls, perms.Permissions{
		Publish: []string{helper, "aee.ctl." + helper, "$SRV.PING." + subject.ServiceName(helper) + ".*", "aee.work.*." + helper, "$JS.API.DIRECT.GET.AEE_REPLY.aee.reply." + helper + ".*", "$JS.API.DIRECT.GET.KV_aee_state.$KV.aee_reply." + helper + ".*",
			"$JS.API.DIRECT.GET.KV_aee_lanes.$KV.aee_lanes.agent=2Ehelper"},
		Subscribe: []string{"aee.reply." + helper + ".*"},
	})
	equal(t, "to take over", takes, perms.Permissions{Publish: []string{"aee.reply." + lead + ".*"}})
	caller, callee := worker(lead, "_INBOX_caller"), worker(helper, "_INBOX_helper")
	caller.Publish, caller.Subscribe = slices.Clip(caller.Publish), slices.Clip(caller.Subscribe)
	callee.Publish, callee.Subscribe = slices.Clip(callee.Publish), slices.Clip(callee.Subscribe)
	try := func(name string, calls, takes perms.Permissions, enough bool) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := teamWorks(t, both(t, caller, nil, calls, nil), both(t, callee, nil, takes, nil))
			switch {
			case enough && err != nil:
				t.Error(err)
			case !enough && !isErr(err, nats.ErrPermissionViolation):
				t.Errorf("got %v", err)
			}
		})
	}
	try("all", calls, takes, true)
	try("without the reply subject of who was asked", calls, perms.Permissions{}, false)
	for i, s := range calls.Publish {
		if strings.Contains(s, ".DIRECT.GET.") {
			continue // for what was missed while the connection was away, and for callees that have no consumer yet
		}
		less := calls
		less.Publish = slices.Delete(slices.Clone(calls.Publish), i, i+1)
		try("without publish "+s, less, takes, false)
	}
	less := calls
	less.Subscribe = nil
	try("without subscribe", less, takes, false)
}

package denial_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// restricted connects as a user who may publish and subscribe to may.> alone.
func restricted(t *testing.T, opts ...nats.Option) *nats.Conn {
	t.Helper()
	may := natsd.Subjects{Allow: []string{"may.>"}}
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{{Name: "u", Password: "p", Permissions: &natsd.Permissions{Publish: may, Subscribe: may}}}})
	return natstest.Conn(t, srv, append([]nats.Option{nats.UserInfo("u", "p")}, opts...)...)
}

// try publishes and subscribes to each subject, and waits until the server has processed it.
func try(t *testing.T, nc *nats.Conn, publish, subscribe []string) {
	t.Helper()
	for _, s := range publish {
		if err := nc.Publish(s, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range subscribe {
		if _, err := nc.QueueSubscribeSync(s, "q"); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.FlushTimeout(20 * time.Second); err != nil {
		t.Fatal(err)
	}
}

func list(all []denial.Denial) (out []string) {
	for _, d := range all {
		if !errors.Is(d.Err, nats.ErrPermissionViolation) {
			out = append(out, fmt.Sprintf("not a violation: %v", d.Err))
		}
		out = append(out, string(d.Op)+" "+d.Subject)
	}
	return out
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

// All denials are heard, not only the last one, and what was denied before is not among them.
// The application's handler gets them, too.
func TestAllDenialsAreHeard(t *testing.T) {
	t.Parallel()
	told := make(chan error, 100)
	nc := restricted(t, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { told <- err }))
	try(t, nc, []string{"not.before"}, nil)
	since := denial.Now(nc)
	try(t, nc, []string{"not.a", "may.b", "not.C"}, []string{"not.>", "may.x"})
	want := "[publish not.a publish not.C subscribe not.>]"
	equal(t, "denied", list(since.All()), want)
	equal(t, "denied, asked again", list(since.All()), want)
	equal(t, "denied since then", list(denial.Now(nc).All()), "[]")
	if _, found := since.Find(func(d denial.Denial) bool { return d.Is(denial.Publish, "not.before") }); found {
		t.Error("a denial of before is found")
	}
	for range 4 {
		select {
		case err := <-told:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("the application's handler got %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the application's handler did not get all")
		}
	}
}

// Of very many denials the last ones are kept.
func TestTheLastDenialsAreKept(t *testing.T) {
	t.Parallel()
	nc := restricted(t)
	since := denial.Now(nc)
	var all []string
	for i := range 100 {
		all = append(all, fmt.Sprintf("not.%d", i))
	}
	try(t, nc, all, nil)
	got := since.All()
	if len(got) != 64 || got[63].Subject != "not.99" {
		t.Errorf("%d denials, the last %+v", len(got), got[len(got)-1:])
	}
}

// An application that replaces the error handler later takes the denials from this package. The
// last one is heard all the same.
func TestAReplacedHandlerHidesNotTheLastDenial(t *testing.T) {
	t.Parallel()
	nc := restricted(t)
	since := denial.Now(nc)
	ctx, stop := denial.Until(t.Context(), nc, func(d denial.Denial) error {
		if d.Is(denial.Publish, "not.b") {
			return d.Err
		}
		return nil
	})
	defer stop()
	nc.SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	try(t, nc, []string{"not.a"}, nil)
	equal(t, "denied", list(since.All()), "[publish not.a]")
	try(t, nc, []string{"not.b"}, nil)
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the denial is not noticed")
	}
}

// A denial ends the wait for what was denied, and is then no explanation of a later timeout.
func TestUntilADenial(t *testing.T) {
	t.Parallel()
	nc := restricted(t)
	try(t, nc, []string{"not.mine"}, nil) // an old one
	wrong := errors.New("mine")
	ctx, stop := denial.Until(t.Context(), nc, func(d denial.Denial) error {
		if d.Is(denial.Publish, "not.mine") {
			return wrong
		}
		return nil
	})
	defer stop()
	try(t, nc, []string{"not.other"}, []string{"not.mine"})
	every := func(denial.Denial) bool { return true }
	if d, _ := denial.Why(nc, every); !d.Is(denial.Subscribe, "not.mine") {
		t.Errorf("the newest denial is %+v", d)
	}
	if ctx.Err() != nil { // all were heard
		t.Fatalf("ended by a denial of something else, or an older one: %v", context.Cause(ctx))
	}
	try(t, nc, []string{"not.mine"}, nil)
	select {
	case <-ctx.Done():
		equal(t, "the cause", context.Cause(ctx), wrong)
	case <-time.After(20 * time.Second):
		t.Fatal("the denial is not noticed")
	}
	if d, _ := denial.Why(nc, every); !d.Is(denial.Subscribe, "not.mine") {
		t.Errorf("after the caller was told, the newest denial is %+v", d)
	}
}

// A denial of publishing that no caller waited for explains nothing much later. That of a
// subscription lasts.
func TestAnOldDenialExplainsNothing(t *testing.T) {
	t.Parallel()
	nc := restricted(t)
	denial.Now(nc) // from now on all are heard
	try(t, nc, []string{"not.p"}, nil)
	try(t, nc, nil, []string{"not.s"})
	publish := func(d denial.Denial) bool { return d.Op == denial.Publish }
	if d, _ := denial.Why(nc, publish); !d.Is(denial.Publish, "not.p") {
		t.Errorf("at once: %+v", d)
	}
	denial.Age(nc, 2*time.Minute)
	if d, found := denial.Why(nc, publish); found {
		t.Errorf("two minutes later: %+v", d)
	}
	if d, _ := denial.Why(nc, func(denial.Denial) bool { return true }); !d.Is(denial.Subscribe, "not.s") {
		t.Errorf("of a subscription, two minutes later: %+v", d)
	}
}

// After a reconnect the permissions may be others, and nats.go has subscribed again.
func TestADenialEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	back := make(chan struct{}, 1)
	nc := restricted(t, nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	denial.Now(nc)
	try(t, nc, []string{"not.a"}, nil)
	every := func(denial.Denial) bool { return true }
	if _, found := denial.Why(nc, every); !found {
		t.Error("not heard")
	}
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-back:
	case <-time.After(20 * time.Second):
		t.Fatal("no reconnect")
	}
	if d, found := denial.Why(nc, every); found {
		t.Errorf("after the reconnect: %+v", d)
	}
}

// A listener hears also where the application has replaced the error handler before.
func TestAListenerHearsAfterTheHandlerWasReplaced(t *testing.T) {
	t.Parallel()
	nc := restricted(t)
	denial.Now(nc)
	nc.SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	heard := make(chan denial.Denial, 10)
	t.Cleanup(denial.Listen(nc, func(d denial.Denial) { heard <- d }))
	try(t, nc, nil, []string{"not.a"})
	select {
	case d := <-heard:
		equal(t, "heard", d.Subject, "not.a")
	case <-time.After(20 * time.Second):
		t.Fatal("not heard")
	}
}

// A worker after the other listens on one connection: the handlers in front of the application's do
// not pile up.
func TestListenersDoNotPileUpHandlers(t *testing.T) {
	t.Parallel()
	depth := make(chan int, 16)
	nc := restricted(t, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { depth <- runtime.Callers(0, make([]uintptr, 1000)) }))
	for range 100 {
		denial.Listen(nc, func(denial.Denial) {})()
	}
	try(t, nc, []string{"not.this"}, nil)
	if n := <-depth; n > 20 {
		t.Errorf("the application's handler is called %d calls deep", n)
	}
}

// Each form of nats-server's report is understood.
func TestTheReportsOfTheServer(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`Permissions Violation for Publish to "a.b"`:                           "publish a.b",
		`Permissions Violation for Publish with Reply of "_INBOX.x"`:           "reply _INBOX.x",
		`Permissions Violation for Subscription to "a.>"`:                      "subscribe a.>",
		`Permissions Violation for Subscription to "a.\"q\"" using queue "q"`:  `subscribe a."q"`,
		`Permissions Violation for Subscription to "a.*" (sid "12")`:           "subscribe a.*",
		`Permissions Violation for Subscription to "a.b.c", too many tokens`:   "subscribe a.b.c",
		`Permissions Violation for something that is not known yet to "a.b.c"`: " ",
	} {
		d := denial.Parse(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, text))
		if got := string(d.Op) + " " + d.Subject; got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}

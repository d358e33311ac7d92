package doctor

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// An operator who names a JetStream domain has what "auth perms" prints for it, on a server outside
// of the domain, and what it prints without, on one of the domain itself: that takes the API prefix
// away before it checks permissions. So it is whether the server tells the permissions or they are
// tried.
func TestDoctorKnowsThePermissionsInADomain(t *testing.T) {
	t.Parallel()
	var m subject.Map
	const inbox = "_INBOX.ops"
	plain := perms.Operator(m, inbox)
	without := func(p perms.Permissions, prefix string) perms.Permissions {
		p.Publish = slices.DeleteFunc(slices.Clone(p.Publish), func(s string) bool { return strings.HasPrefix(s, prefix) })
		return p
	}
	traced := func(p perms.Permissions) perms.Permissions { // the server tells them nothing, and they may try
		p = without(p, "$SYS.")
		p.Publish = append(p.Publish, "aeemesh.doctor.>")
		return p
	}
	mute := func(p perms.Permissions) perms.Permissions { return without(p, "$SYS.") }
	users := func(in func(perms.Permissions) perms.Permissions) (all []natsd.User) {
		none := without(plain, "$JS.API.>")
		for name, p := range map[string]perms.Permissions{
			"told": in(plain), "traced": traced(in(plain)), "mute": mute(in(plain)),
			"less": in(none), "traced-less": traced(in(none)), "mute-less": mute(in(none)),
			"no-key": in(without(plain, "$KV.")), "traced-no-key": traced(in(without(plain, "$KV."))),
		} {
			all = append(all, natsd.User{Name: name, Password: name, Permissions: &natsd.Permissions{
				Publish: natsd.Subjects{Allow: p.Publish}, Subscribe: natsd.Subjects{Allow: p.Subscribe}}})
		}
		return all
	}
	_, leaf := natstest.Leaf(t, 4<<30, users(func(p perms.Permissions) perms.Permissions { return p.InDomain("hub") })...)
	hub := natstest.Run(t, natsd.Config{JetStream: true, Domain: "hub", Users: users(func(p perms.Permissions) perms.Permissions { return p })})
	for name, srv := range map[string]*natsd.Server{"leaf": leaf, "hub": hub} {
		for _, c := range []struct {
			user, want string
			store      bool // it may store a key at the hub; at the leaf node that is a request to JetStream's API
		}{
			{"told", "ok   permissions  told may operate the mesh\n", true},
			{"traced", "ok   permissions  this user may operate the mesh, as far as that was tried (the server does not report it", true},
			{"mute", "ok   permissions  this user may operate the mesh, as far as that was tried (not tried", true},
			{"less", "fail permissions  less, to operate the mesh, may not publish to $JS.hub.API.INFO; ", true},
			{"traced-less", "fail permissions  this user, to operate the mesh, may not publish to $JS.hub.API.INFO; ", true},
			{"mute-less", "fail permissions  this user, to operate the mesh, may not publish to $JS.hub.API.INFO; ", true},
			{"no-key", "ok   permissions  no-key may operate the mesh\n", false},
			{"traced-no-key", "ok   permissions  this user may operate the mesh", false},
		} {
			var out bytes.Buffer
			conn := natstest.Conn(t, srv, nats.UserInfo(c.user, c.user), nats.CustomInboxPrefix(inbox))
			d := &doctor{app: printingTo(&out), conn: conn, entity: "agent.x", role: roleOperator}
			d.app.Conn.Domain = "hub"
			d.permissions(t.Context())
			got := out.String()
			if !strings.HasPrefix(got, c.want) || strings.Contains(got, "not publish to $JS.hub.API.STREAM.CREATE.AEE_WORK") {
				t.Errorf("at the %s, %s:\n%s", name, c.user, got)
			}
			if strings.HasPrefix(got, "fail") && !strings.Contains(got, "auth perms --js-domain hub --operator") {
				t.Errorf("at the %s, %s: no hint with the domain:\n%s", name, c.user, got)
			}
			if may := d.mayTry() && d.mayPublish("$KV.aee_seen.doctor"); may != (c.store || srv == leaf) && !strings.HasPrefix(c.user, "mute") {
				t.Errorf("at the %s, %s may store a key: %v", name, c.user, may)
			}
		}
	}
}

// A monitoring port tells the fsync setting of its own server: that of a leaf node says nothing of
// the hub that has the streams.
func TestDoctorAsksNoOtherDomainForItsFsync(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Domain: "hub"})
	js, err := natsjs.NewWithDomain(natstest.Conn(t, srv), "hub")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	for domain, want := range map[string][]string{
		"hub":  {"ok   fsync        always: what is acknowledged is on the disk", "ok   durable      against the death of workers and a crash of the machine"},
		"edge": {`warn fsync        unknown: the server that says always is of JetStream domain "edge", and the streams are in "hub"`, "warn durable "},
		"":     {`warn fsync        unknown: the server that says always is of JetStream domain "", and the streams are in "hub"`, "warn durable "},
	} {
		monitor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"config":{"sync_interval":120000000000,"sync_always":true,"domain":%q}}`, domain)
		}))
		var out bytes.Buffer
		d := &doctor{app: printingTo(&out), conn: js.Conn(), monitor: monitor.URL, role: roleOperator}
		d.jetStream(t.Context(), js)
		monitor.Close()
		for _, want := range want {
			if got := out.String(); !strings.Contains(got, want) {
				t.Errorf("a monitoring port in the domain %q: want %q in\n%s", domain, want, got)
			}
		}
	}
}

// At a leaf node without the mesh's streams "apply" refuses to make them, since the hub has them.
func TestDoctorDoesNotAdviseToMakeASecondMesh(t *testing.T) {
	t.Parallel()
	hub, leaf := natstest.Leaf(t, 4<<30)
	says := func(json bool) string {
		js, err := natsjs.New(natstest.Conn(t, leaf))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		d := &doctor{app: printingTo(&out), conn: js.Conn(), role: roleWorker}
		d.app.Term.JSON = json
		d.jetStream(t.Context(), js)
		return out.String()
	}
	if got := says(false); !strings.Contains(got, `"aeemesh apply" makes what is missing.`) {
		t.Errorf("where there is no mesh yet:\n%s", got)
	}
	js, err := natsjs.New(natstest.Conn(t, hub))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "doctor sees the hub's", func() bool { return strings.Contains(says(false), "--js-domain") })
	for _, json := range []bool{false, true} {
		if got := says(json); strings.Contains(got, `aeemesh apply`) || !strings.Contains(got, "--js-domain") {
			t.Errorf("where the hub has it:\n%s", got)
		}
	}
}

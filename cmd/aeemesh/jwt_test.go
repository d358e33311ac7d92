package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/jwt/v2"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/auth"
)

// jwtRig is a server in operator mode with its defaults, 4,096 bytes of control line
// among them, and the credentials of users who have what "auth perms" prints.
type jwtRig struct {
	*testing.T
	url  string
	user func(func(*jwt.UserClaims)) (token, seed string)
	dir  string
}

// creds are credentials with the permissions that a command prints.
func (r *jwtRig) creds(who string, args ...string) string {
	r.Helper()
	var p struct{ Publish, Subscribe []string }
	stdout, stderr, code := r.run("", append([]string{"auth", "perms", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &p); code != exitOK || err != nil {
		r.Fatalf("auth perms %v: exit %d, %v, %s", args, code, err, stderr)
	}
	token, seed := r.user(func(c *jwt.UserClaims) { c.Pub.Allow, c.Sub.Allow = p.Publish, p.Subscribe })
	r.Logf("%d bytes of JWT for %v", len(token), args)
	if text, _, _ := r.run("", append([]string{"auth", "perms"}, args...)...); strings.Contains(text, "max_control_line") != (len(token)+auth.ConnectRoom > auth.MaxControlLine) {
		r.Errorf("%v: %d bytes of JWT, and it says\n%s", args, len(token), text)
	}
	text, err := jwt.FormatUserConfig(token, []byte(seed))
	if err != nil {
		r.Fatal(err)
	}
	file, err := os.CreateTemp(r.dir, who+"-*.creds")
	if err == nil {
		_, err = file.Write(text)
	}
	if err != nil {
		r.Fatal(err)
	}
	defer file.Close()
	return file.Name()
}

func (r *jwtRig) run(creds string, args ...string) (stdout, stderr string, code int) {
	r.Helper()
	return r.runIn(r.Context(), creds, args...)
}

func (r *jwtRig) runIn(ctx context.Context, creds string, args ...string) (stdout, stderr string, code int) {
	who, _, _ := strings.Cut(filepath.Base(creds), "-")
	env := map[string]string{"NATS_URL": r.url, "NATS_CREDS": creds, "HOME": r.dir, "USER": who, "XDG_CONFIG_HOME": filepath.Join(r.dir, "config")}
	var out, errs bytes.Buffer
	code = run(ctx, args, strings.NewReader(""), &out, &errs, func(name string) string { return env[name] })
	return out.String(), errs.String(), code
}

// Finding 1 of the operators' tour: the credentials of a worker's user, as they are
// printed, connect to a server with its default control line, and suffice; so do those
// of the roles.
func TestPrintedPermissionsFitIntoAJWT(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv, user := operatorMode(t)
	r := &jwtRig{T: t, url: srv.ClientURL(), user: user, dir: t.TempDir()}
	const document = "../../examples/echo/agent.yaml"
	operator := r.creds("ops", "--operator", "--from", "human.ops")
	must := func(creds, want string, args ...string) {
		t.Helper()
		stdout, stderr, code := r.run(creds, args...)
		if code != exitOK || !strings.Contains(stdout+stderr, want) || strings.Contains(stderr, "ermission") {
			t.Errorf("%v: exit %d, want %q in\n%s%s", args, code, want, stdout, stderr)
		}
	}
	must(operator, "made", "apply", "--yes", "--entity", "agent.echo")

	long := r.creds("long", "agent.team", "--durable", "--team", "--calls", "agent.a", "--calls", "agent.b", "--calls", "agent.c", "--calls", "agent.d", "--journal", "jetstream")
	if _, stderr, code := r.run(long, "worker", document, "--as", "agent.team"); code == exitOK || !strings.Contains(stderr, "max_control_line: 16KB") {
		t.Errorf("a JWT that is too long: exit %d, %s", code, stderr)
	}

	for name, worker := range map[string][]string{
		"as it is":        {"agent.echo", "--durable"},
		"with everything": {"agent.echo", "--durable", "--shared-keys", "--replay-scope", "mesh", "--journal", "jetstream", "--calls", "human.ada"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan string, 1)
			flags := []string{"worker", document, "--no-create"}
			if name != "as it is" {
				flags = append(flags, "--shared-keys", "--replay-scope", "mesh", "--journal", "jetstream")
			}
			go func() {
				_, stderr, code := r.runIn(ctx, r.creds("worker", worker...), flags...)
				if code != exitOK || strings.Contains(stderr, "ermission") {
					stderr = "failed: " + stderr
				}
				ended <- stderr
			}()
			sender := r.creds("ada", "agent.echo", "--sender", "--durable", "--from", "human.ada")
			must(sender, "stored", "send", "agent.echo", `{"text":"stored"}`, "--durable", "--from", "human.ada")
			must(sender, "live", "send", "agent.echo", `{"text":"live"}`, "--from", "human.ada", "--retries", "5")
			viewer := r.creds("eve", "--viewer", "--from", "human.eve")
			must(viewer, "completed", "runs", "list")
			if stdout, _, code := r.run(viewer, "agents", "list"); code != exitOK || !strings.Contains(stdout, "agent.echo") {
				t.Errorf("agents list: exit %d, %s", code, stdout)
			}
			must(viewer, "agent.echo", "queues")
			if _, _, code := r.run(viewer, "runs", "cancel", "x", "-e", "agent.echo", "--timeout", "2s"); code == exitOK {
				t.Error("a viewer cancels runs")
			}
			must(operator, "agent.echo", "queues")
			must(operator, "restored", "janitor")
			stop()
			if stderr := <-ended; strings.HasPrefix(stderr, "failed") {
				t.Error(stderr)
			}
		})
	}
}

package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/health"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// until polls until what holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for wait := pollPause; !holds(); wait = min(2*wait, retryPause) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v until %s", patience, what)
		}
		<-time.After(wait)
	}
}

// fetch is an answer over HTTP; status 0: there is none.
func fetch(url string) (status int, body string) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	raw, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(raw)
}

// A worker tells over HTTP and to its service manager how it stands: fault 10 of
// the operators' review.
func TestAWorkerTellsHowItStands(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	if err := applyTopology(srv); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sd") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Skip(err)
	}
	defer manager.Close()
	told := make(chan string, 1024)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := manager.Read(buf)
			if err != nil {
				close(told)
				return
			}
			told <- string(buf[:n])
		}
	}()
	var words natstest.Buffer
	env := map[string]string{"NATS_URL": srv.ClientURL(), "HOME": t.TempDir(), "USER": "ada", "NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "200000"}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"worker", "../../examples/echo/agent.yaml", "--health-listen", "127.0.0.1:0", "--log-format", "json", "--drain", "3s", "--machine", "host-of-test"},
			strings.NewReader(""), io.Discard, &words, func(name string) string { return env[name] })
	}()
	var url string
	until(t, "the address is told", func() bool {
		m := regexp.MustCompile(`"msg":"health","url":"(http://[^"]+)"`).FindStringSubmatch(words.String())
		if m != nil {
			url = m[1]
		}
		return m != nil
	})
	ready := func() (health.Report, int) {
		status, body := fetch(url + "/readyz")
		var r health.Report
		if status != 0 {
			if err := json.Unmarshal([]byte(body), &r); err != nil {
				t.Errorf("%v: %s", err, body)
			}
		}
		return r, status
	}
	until(t, "the worker is ready", func() bool { r, status := ready(); return r.Ready && status == http.StatusOK })
	r, _ := ready()
	if len(r.Checks) != 2 || r.Checks[0].Name != "nats" || r.Checks[1].Name != "agent.echo" || r.Checks[1].Detail["durable"] != "working" || r.Checks[1].Detail["instance"] == "" {
		t.Errorf("%+v", r)
	}
	watched := false
	for first := true; first || !watched; first = false {
		switch got := <-told; {
		case got == "WATCHDOG=1":
			watched = true
			first = true
		case !strings.HasPrefix(got, "READY=1\nSTATUS=serving agent.echo"):
			t.Errorf("the service manager is told %q", got)
		}
	}
	if status, body := fetch(url + "/healthz"); status != http.StatusOK || !strings.Contains(body, `"status":"alive"`) {
		t.Errorf("healthz: %d %s", status, body)
	}
	var out strings.Builder
	if code := run(t.Context(), []string{"send", "agent.echo", "hi"}, strings.NewReader(""), &out, io.Discard, func(name string) string { return env[name] }); code != exitOK {
		t.Errorf("send: exit %d", code)
	}
	until(t, "the task is counted", func() bool {
		_, body := fetch(url + "/metrics")
		return regexp.MustCompile(`(?m)^aee_task_duration_\w*count\{[^}]*\} [1-9]`).MatchString(body) && strings.Contains(body, "aeemesh_build_info")
	})

	// Which process it is can be seen, and this one asked.
	out.Reset()
	if code := run(t.Context(), []string{"agents", "describe", "agent.echo", "--json"}, strings.NewReader(""), &out, io.Discard, func(name string) string { return env[name] }); code != exitOK {
		t.Errorf("describe: exit %d", code)
	}
	var d struct{ Instances []mesh.Instance }
	if err := json.Unmarshal([]byte(out.String()), &d); err != nil || len(d.Instances) != 1 {
		t.Fatalf("%v: %s", err, out.String())
	}
	meta, instance := d.Instances[0].Info.Metadata, d.Instances[0].Info.ID
	if meta[worker.MetaHost] != "host-of-test" || meta[worker.MetaPID] == "" || meta["aeemesh_version"] != version() || meta[worker.MetaProcessStarted] == "" || r.Checks[1].Detail["instance"] != instance {
		t.Errorf("%v, instance %s", meta, instance)
	}
	out.Reset()
	if code := run(t.Context(), []string{"agents", "ping", "agent.echo", "--instance", instance, "--json"}, strings.NewReader(""), &out, io.Discard, func(name string) string { return env[name] }); code != exitOK ||
		!strings.Contains(out.String(), `"host":"host-of-test"`) {
		t.Errorf("ping: exit %d, %s", code, out.String())
	}
	if code := run(t.Context(), []string{"agents", "ping", "agent.echo", "--instance", "QOY2xPTN8lxRpyVUwFBbWf"}, strings.NewReader(""), io.Discard, io.Discard, func(name string) string { return env[name] }); code != 3 {
		t.Errorf("ping of an instance that is not: exit %d", code)
	}
	out.Reset()
	if code := run(t.Context(), []string{"agents", "list"}, strings.NewReader(""), &out, io.Discard, func(name string) string { return env[name] }); code != exitOK || !strings.Contains(out.String(), "host-of-test") {
		t.Errorf("list: exit %d, %s", code, out.String())
	}

	// Without its server it lives and is not ready.
	cfg := srv.Config()
	srv.Close()
	until(t, "the worker is not ready", func() bool {
		r, status := ready()
		return status == http.StatusServiceUnavailable && !r.Ready && !r.Checks[0].OK && strings.Contains(r.Checks[0].Why, "RECONNECTING")
	})
	if status, _ := fetch(url + "/healthz"); status != http.StatusOK {
		t.Errorf("healthz without a server: %d", status)
	}
	again, err := natsd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	until(t, "the worker is ready again", func() bool { r, _ := ready(); return r.Ready })
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("exit %d: %s", code, words.String())
	}
	until(t, "the service manager is told that it stops", func() bool {
		for {
			select {
			case got, open := <-told:
				if !open {
					return false
				}
				if strings.HasPrefix(got, "STOPPING=1\nEXTEND_TIMEOUT_USEC=13000000") {
					return true
				}
			default:
				return false
			}
		}
	})
	if status, _ := fetch(url + "/healthz"); status != 0 {
		t.Errorf("it answers after its end: %d", status)
	}
}

func TestHealthcheckFindsTheProcessOfThisMachine(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		"127.0.0.1:8223": "http://127.0.0.1:8223/readyz", ":8223": "http://127.0.0.1:8223/readyz", "0.0.0.0:8223": "http://127.0.0.1:8223/readyz",
		"[::]:8223": "http://127.0.0.1:8223/readyz", "[::1]:8223": "http://[::1]:8223/readyz", "10.0.0.7:1": "http://10.0.0.7:1/readyz",
		"127.0.0.1:0": "", "8223": "",
	} {
		got, err := healthURL(listen, "/readyz")
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v", listen, got, err)
		}
	}
	metrics := httpServer(t, http.StatusOK)
	broken := httpServer(t, http.StatusServiceUnavailable)
	for _, tt := range []struct {
		args []string
		env  string
		want int
	}{
		{[]string{"healthcheck", metrics}, "", 0},
		{[]string{"healthcheck"}, strings.TrimPrefix(metrics, "http://"), 0},
		{[]string{"healthcheck", broken}, "", 1},
		{[]string{"healthcheck", "http://127.0.0.1:1/"}, "", 1},
		{[]string{"healthcheck", strings.TrimSuffix(metrics, "/metrics")}, "", 0}, // asks /readyz
		{[]string{"healthcheck"}, "", 2},
		{[]string{"healthcheck", "8223"}, "", 2},
	} {
		code := run(t.Context(), tt.args, strings.NewReader(""), io.Discard, io.Discard, func(name string) string {
			if name == "AEEMESH_HEALTH_LISTEN" {
				return tt.env
			}
			return ""
		})
		if code != tt.want {
			t.Errorf("%v with %q: exit %d, want %d", tt.args, tt.env, code, tt.want)
		}
	}
}

func httpServer(t *testing.T, status int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return "http://" + l.Addr().String()
}

// A worker that is connected and waits for the mesh's shared keys serves nothing, and says why.
func TestAWorkerSaysThatItWaitsForTheSharedKeys(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{}) // without JetStream
	var words natstest.Buffer
	env := map[string]string{"NATS_URL": srv.ClientURL(), "HOME": t.TempDir(), "USER": "ada"}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"worker", "../../examples/echo/agent.yaml", "--shared-keys", "--health-listen", "127.0.0.1:0", "--log-format", "json"},
			strings.NewReader(""), io.Discard, &words, func(name string) string { return env[name] })
	}()
	until(t, "the worker waits for the keys", func() bool { return strings.Contains(words.String(), "waiting for the mesh's shared keys") })
	url := regexp.MustCompile(`"msg":"health","url":"(http://[^"]+)"`).FindStringSubmatch(words.String())[1]
	ready := func() string {
		_, body := fetch(url + "/readyz")
		return strings.TrimSpace(body)
	}
	const waits = `{"name":"keys","ok":false,"why":"waiting for the mesh's shared keys: nothing is served until they are read"}`
	if got, want := ready(), `{"ready":false,"checks":[{"name":"nats","ok":true},`+waits+`]}`; got != want {
		t.Errorf("/readyz says %s, want %s", got, want)
	}
	srv.Close()
	until(t, "the lost connection is told", func() bool {
		got := ready()
		return strings.Contains(got, `{"name":"nats","ok":false,"why":"the connection is RECONNECTING"}`) && strings.Contains(got, waits)
	})
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("exit %d: %s", code, words.String())
	}
}

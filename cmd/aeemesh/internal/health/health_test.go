package health_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/health"
)

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

// Fault 10 of the operators' review: a process can be asked for its health over
// HTTP.
func TestAProcessTellsItsHealth(t *testing.T) {
	t.Parallel()
	metrics, err := health.NewMetrics("1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics.Reader()))
	defer provider.Shutdown(context.Background())
	counter, err := provider.Meter("test").Int64Counter("aee.things", metric.WithDescription("Things."))
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 3)
	var ready atomic.Bool
	s, err := health.Listen("127.0.0.1:0", health.Config{
		Alive: health.Alive{Status: "alive", Version: "1.2.3", PID: 7},
		Checks: func() []health.Check {
			return []health.Check{{Name: "nats", OK: true}, {Name: "agent.a", OK: ready.Load(), Why: "not served yet"}}
		},
		Metrics: metrics.Handler(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if status, body := get(t, s.URL()+"/healthz"); status != 200 || !strings.Contains(body, `"version":"1.2.3","pid":7`) {
		t.Errorf("healthz: %d %s", status, body)
	}
	status, body := get(t, s.URL()+"/readyz")
	var r health.Report
	if err := json.Unmarshal([]byte(body), &r); err != nil || status != 503 || r.Ready || len(r.Checks) != 2 || !r.Checks[0].OK || r.Checks[1].Why != "not served yet" {
		t.Errorf("readyz: %d %s", status, body)
	}
	if err := health.Probe(t.Context(), s.URL()+"/readyz"); err == nil || err.Error() != "not ready: agent.a: not served yet" {
		t.Errorf("probe: %v", err)
	}
	ready.Store(true)
	if status, body := get(t, s.URL()+"/readyz"); status != 200 || !strings.Contains(body, `"ready":true`) {
		t.Errorf("readyz: %d %s", status, body)
	}
	if err := health.Probe(t.Context(), s.URL()+"/readyz"); err != nil {
		t.Errorf("probe: %v", err)
	}
	_, body = get(t, s.URL()+"/metrics")
	for _, want := range []string{`aee_things_total{otel_scope_name="test"`, "} 3\n", "go_goroutines ", "process_", `aeemesh_build_info{version="1.2.3"} 1`} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %q:\n%.3000s", want, body)
		}
	}
	if status, _ := get(t, s.URL()+"/debug/pprof/"); status != 404 {
		t.Errorf("pprof: %d", status)
	}
	res, err := http.Post(s.URL()+"/readyz", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", res.StatusCode)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := health.Probe(t.Context(), s.URL()+"/healthz"); err == nil {
		t.Error("it answers after Close")
	}
}

func TestAProbeIsBoundedAndFollowsNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hangs":
			<-r.Context().Done()
		case "/elsewhere":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/broken":
			http.Error(w, "no", http.StatusInternalServerError)
		}
	})}
	go srv.Serve(l)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, path := range []string{"/hangs", "/elsewhere", "/broken"} {
		in := t.Context()
		if path == "/hangs" {
			in = ctx
		}
		if err := health.Probe(in, "http://"+l.Addr().String()+path); err == nil {
			t.Errorf("%s is well", path)
		}
	}
}

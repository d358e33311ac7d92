package main

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
)

// receiver is an OTLP receiver, over HTTP and over gRPC: what it is sent is
// decoded as the protocol has it.
type receiver struct {
	http, grpc string // where it listens

	mu      sync.Mutex
	spans   []otlpSpan
	metrics map[string]bool // by name and error.type
	raw     []byte          // all that came
	keys    map[string]bool // values of the header api-key
	sources map[string]bool // service.instance.id of the resources
	clients map[bool]bool   // whether the clients showed certificates
}

// otlpSpan is a span as it came.
type otlpSpan struct {
	Name, Trace, ID, Parent string
	Status                  tracepb.Status_StatusCode
	Kind                    tracepb.Span_SpanKind
	Attrs                   map[string]any
	Links                   []string // traces and spans
	Events                  int
}

func newReceiver(t *testing.T) *receiver { return listen(t, nil) }

// listen serves with TLS if there is a certificate, and then asks clients for theirs.
func listen(t *testing.T, certificate *tls.Certificate) *receiver {
	t.Helper()
	r := &receiver{metrics: map[string]bool{}, keys: map[string]bool{}, sources: map[string]bool{}, clients: map[bool]bool{}}
	web := httptest.NewUnstartedServer(r)
	var options []grpc.ServerOption
	scheme := "grpc://"
	if certificate == nil {
		web.Start()
	} else {
		asks := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*certificate}, ClientAuth: tls.RequestClientCert}
		options, scheme = []grpc.ServerOption{grpc.Creds(credentials.NewTLS(asks))}, "grpcs://"
		web.TLS = asks.Clone()
		web.StartTLS()
	}
	t.Cleanup(web.Close)
	r.http = web.URL
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(options...)
	collectortrace.RegisterTraceServiceServer(srv, traceService{r: r})
	collectormetrics.RegisterMetricsServiceServer(srv, metricsService{r: r})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() { srv.Stop(); <-done })
	r.grpc = scheme + l.Addr().String()
	return r
}

// client records whether a client showed a certificate.
func (r *receiver) client(state *tls.ConnectionState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[state != nil && len(state.PeerCertificates) > 0] = true
}

func (r *receiver) clientOf(ctx context.Context) {
	var state *tls.ConnectionState
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			state = &info.State
		}
	}
	r.client(state)
}

// ServeHTTP takes OTLP over HTTP.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.client(req.TLS)
	body, err := io.ReadAll(req.Body)
	if err != nil || req.Method != http.MethodPost || req.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "not OTLP", http.StatusBadRequest)
		return
	}
	var answer proto.Message
	switch req.URL.Path {
	case "/v1/traces":
		var in collectortrace.ExportTraceServiceRequest
		if err = proto.Unmarshal(body, &in); err == nil {
			r.takeSpans(&in, req.Header.Get("Api-Key"))
		}
		answer = &collectortrace.ExportTraceServiceResponse{}
	case "/v1/metrics":
		var in collectormetrics.ExportMetricsServiceRequest
		if err = proto.Unmarshal(body, &in); err == nil {
			r.takeMetrics(&in, req.Header.Get("Api-Key"))
		}
		answer = &collectormetrics.ExportMetricsServiceResponse{}
	default:
		http.NotFound(w, req)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	out, _ := proto.Marshal(answer)
	_, _ = w.Write(out)
}

type traceService struct {
	collectortrace.UnimplementedTraceServiceServer
	r *receiver
}

func (s traceService) Export(ctx context.Context, in *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	s.r.clientOf(ctx)
	s.r.takeSpans(in, key(ctx))
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

type metricsService struct {
	collectormetrics.UnimplementedMetricsServiceServer
	r *receiver
}

func (s metricsService) Export(ctx context.Context, in *collectormetrics.ExportMetricsServiceRequest) (*collectormetrics.ExportMetricsServiceResponse, error) {
	s.r.clientOf(ctx)
	s.r.takeMetrics(in, key(ctx))
	return &collectormetrics.ExportMetricsServiceResponse{}, nil
}

func key(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get("api-key"); len(v) > 0 {
		return v[0]
	}
	return ""
}

func (r *receiver) note(in proto.Message, key string) {
	raw, _ := proto.Marshal(in)
	r.raw = append(r.raw, raw...)
	r.keys[key] = true
}

// from records which process a resource is.
func (r *receiver) from(res *resourcepb.Resource) {
	id, _ := values(res.GetAttributes())["service.instance.id"].(string)
	r.sources[id] = true
}

func (r *receiver) takeSpans(in *collectortrace.ExportTraceServiceRequest, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(in, key)
	for _, res := range in.ResourceSpans {
		r.from(res.Resource)
		for _, scope := range res.ScopeSpans {
			for _, s := range scope.Spans {
				out := otlpSpan{Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
					Status: s.Status.GetCode(), Kind: s.Kind, Attrs: values(s.Attributes), Events: len(s.Events)}
				for _, l := range s.Links {
					out.Links = append(out.Links, hex.EncodeToString(l.TraceId)+" "+hex.EncodeToString(l.SpanId))
				}
				r.spans = append(r.spans, out)
			}
		}
	}
}

func (r *receiver) takeMetrics(in *collectormetrics.ExportMetricsServiceRequest, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(in, key)
	for _, res := range in.ResourceMetrics {
		r.from(res.Resource)
		for _, scope := range res.ScopeMetrics {
			for _, m := range scope.Metrics {
				for _, p := range points(m) {
					name := m.Name
					if kind, ok := values(p)["error.type"].(string); ok {
						name += " " + kind
					}
					if kind, ok := values(p)["gen_ai.token.type"].(string); ok {
						name += " " + kind
					}
					r.metrics[name] = true
				}
			}
		}
	}
}

// points are the attributes of a metric's points.
func points(m *metricspb.Metric) (out [][]*commonpb.KeyValue) {
	for _, p := range m.GetHistogram().GetDataPoints() {
		out = append(out, p.Attributes)
	}
	for _, p := range append(m.GetSum().GetDataPoints(), m.GetGauge().GetDataPoints()...) {
		out = append(out, p.Attributes)
	}
	return out
}

func values(list []*commonpb.KeyValue) map[string]any {
	out := map[string]any{}
	for _, kv := range list {
		out[kv.Key] = readable(kv.Value)
	}
	return out
}

func readable(v *commonpb.AnyValue) any {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return v.IntValue
	case *commonpb.AnyValue_DoubleValue:
		return v.DoubleValue
	case *commonpb.AnyValue_BoolValue:
		return v.BoolValue
	case *commonpb.AnyValue_ArrayValue:
		var out []any
		for _, e := range v.ArrayValue.Values {
			out = append(out, readable(e))
		}
		return out
	}
	return nil
}

// named are the spans of a name, in the order in which they came.
func (r *receiver) named(name string) (out []otlpSpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

// await waits until so many spans of a name are there.
func (r *receiver) await(t *testing.T, name string, n int) []otlpSpan {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if got := r.named(name); len(got) >= n {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d spans %s have come, want %d", len(r.named(name)), name, n)
		}
		<-tick.C
	}
}

// all is everything that came, as bytes.
func (r *receiver) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.raw)
}

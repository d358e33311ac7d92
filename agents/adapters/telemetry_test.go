package adapters

import (
	"strings"
	"testing"
)

func TestDocumentsReachAllowedCollectorsOnly(t *testing.T) {
	t.Parallel()
	allowed := Telemetry{Endpoints: []string{"https://otel.example", "grpc://collector.lab", "http://[::1]:4318"}}
	for endpoint, want := range map[string]string{
		"https://otel.example":                   "https://otel.example:443",
		"https://OTEL.example:443/otlp":          "https://otel.example:443/otlp",
		"grpc://collector.lab:4317":              "grpc://collector.lab:4317",
		"http://[::1]:4318":                      "http://[::1]:4318",
		"http://otel.example":                    "",
		"https://otel.example:4318":              "",
		"https://otel.example.evil.example":      "",
		"https://otel.example@evil.example":      "",
		"https://user:hunter2@otel.example":      "",
		"https://otel.example?key=hunter2":       "",
		"https://otel.example#hunter2":           "",
		"grpcs://collector.lab:4317":             "",
		"otel.example:4318":                      "",
		"file:///etc/passwd":                     "",
		"https://":                               "",
		"://\x00":                                "",
		"https://xn--otel.example":               "",
		"unix:///run/otel.sock":                  "",
		"https://otel.example.":                  "",
		"https://otel.example:443@evil.example/": "",
	} {
		u, err := allowed.Collector(endpoint)
		got := ""
		if err == nil {
			got = u.String()
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error tells the credential: %v", endpoint, err)
		}
		if got != want {
			t.Errorf("%s: %q, %v; want %q", endpoint, got, err, want)
		}
	}
	if _, err := (Telemetry{}).Collector("https://otel.example"); err == nil {
		t.Error("without a list everything is allowed")
	}
	_, err := New(Config{Telemetry: Telemetry{Endpoints: []string{"otel.example", "https://a:b@c"}}}, Options{})
	if err == nil || !strings.Contains(err.Error(), "/telemetry/endpoints/0") || !strings.Contains(err.Error(), "/telemetry/endpoints/1") {
		t.Errorf("a list that can match nothing: %v", err)
	}
}

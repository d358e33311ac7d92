package config

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

var settings = []Setting{
	{Flag: "lease", Kind: Duration}, {Flag: "max-timeout", Kind: Duration}, {Flag: "tool", Kind: List}, {Flag: "queue", Kind: Int},
	{Flag: "rate", Kind: Float}, {Flag: "register", Kind: Bool}, {Flag: "nats", Kind: Text}, {Flag: "password", Kind: Text, Secret: true},
}

func TestReadTakesSettingsWithTheirLines(t *testing.T) {
	t.Parallel()
	got, err := Read("w.yaml", []byte(`outbound: {allow: [x]}
worker:
  max_timeout: 1m
  tool:
    - a=b
    - c=d
  queue: 7
  rate: 0.5
  register: true
  nats: nats://a,nats://b
  password_file: /run/secret
`), settings)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		flag, values string
		line         int
	}{{"max-timeout", "1m", 3}, {"tool", "a=b|c=d", 4}, {"queue", "7", 7}, {"rate", "0.5", 8}, {"register", "true", 9}, {"nats", "nats://a,nats://b", 10}, {"password", "/run/secret", 11}}
	for i, w := range want {
		if i >= len(got) || got[i].Flag != w.flag || strings.Join(got[i].Values, "|") != w.values || got[i].Line != w.line {
			t.Errorf("value %d: %+v, want %+v", i, got[min(i, len(got)-1)], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d values, want %d", len(got), len(want))
	}
}

func TestReadSaysWhatIsWrongAndWhere(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                   "",
		"outbound: {}":                       "",
		`{"worker": {"queue": 3}}`:           "",
		`{"worker": {"queu": 3}}`:            "w.yaml:1:13: worker.queu is not known (did you mean queue?)",
		"worker:\n  max_timeuot: 1m":         "w.yaml:2:3: worker.max_timeuot is not known (did you mean max_timeout?)",
		"worker:\n  max-timeout: 1m":         "(did you mean max_timeout?)",
		"worker:\n  password: hunter2":       "a secret is not written here; password_file names a file",
		"worker:\n  nats: nats://u:p@host":   "it holds a password",
		"worker:\n  zzzzzzzz: 1":             "worker.zzzzzzzz is not known",
		"worker:\n  lease: 3":                `worker.lease: it must be a duration, such as "30s"`,
		"worker:\n  lease: soon":             "it must be a duration",
		"worker:\n  queue: 1.5":              "it must be a whole number",
		"worker:\n  queue: many":             "it must be a whole number",
		"worker:\n  register: yes":           "it must be true or false",
		"worker:\n  nats: 4":                 "it must be text",
		"worker:\n  nats: null":              "it must be text",
		"worker:\n  tool: [1]":               "it must be a list of texts",
		"worker: 1":                          "worker: it must be a mapping",
		"- 1":                                "it must be a mapping of sections",
		"worker:\n  queue: 1\n  queue: 2":    "w.yaml:3:",
		"worker:\n\tqueue: 1":                "w.yaml:2:",
		"worker:\n  queue: x\n  register: 1": "w.yaml:3:",
		strings.Repeat("x", MaxFile+1):       "larger",
	} {
		_, err := Read("w.yaml", []byte(text), settings)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error repeats a secret: %v", err)
		}
	}
}

// docs/operations.md: a URL with a password is refused. nats.go takes the user of a server's URL
// without a password for a token.
func TestReadRefusesPasswordsInURLs(t *testing.T) {
	t.Parallel()
	for text, refused := range map[string]bool{
		"nats: 'nats://ada:c2VjcmV0==@nats:4222'":                     true,
		"nats: 'ada:hunter2@nats:4222'":                               true,
		"nats: 'a:4222,ada:hunter2@b'":                                true,
		"nats: 'a:4222, ada:hunter2@b'":                               true,
		"nats: 'tls://hunter2@nats:4222'":                             true,
		"nats: 'hunter2@nats:4222'":                                   true,
		"nats: 'nats://ada:50%hunter2@nats'":                          true, // no URL by RFC 3986
		"nats: 'nats://ada:p@hunter2@nats'":                           true,
		"nats: 'nats://a:4222,b:4222,[::1]:4222'":                     false,
		"nats: 'wss://nats:443/way?to=ada:b@c'":                       false,
		"tool: ['x=https://ada:hunter2==@host/']":                     true,
		"tool: ['run --url=https://ada:hunter2@host/ --json']":        true,
		"tool: ['x=https://host/?other=https://ada:hunter2@host']":    true,
		"tool: ['x=https://ada@host/a:b', 'mail ada:x@host']":         false,
		"tool: ['x=https://host/?mail=a:b@c', 'x=https://host:1/#@']": false,
	} {
		_, err := Read("w.yaml", []byte("worker: {"+text+"}"), settings)
		if got := err != nil && strings.Contains(err.Error(), "it holds a password"); got != refused || !refused && err != nil {
			t.Errorf("%s: %v; refused: want %v", text, err, refused)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error repeats a secret: %v", err)
		}
	}
}

func TestSchemaHasEverySetting(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Schema(settings, map[string]any{"outbound": map[string]any{"type": "object"}, Section: nil}))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		if !strings.Contains(string(text), `"`+s.Key()+`":{`) {
			t.Errorf("the schema lacks %s", s.Key())
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("worker:\n  queue: 1\n  tool: [a=b]\n  lease: 3s\n"))
	f.Add([]byte(`{"worker": {"rate": 1e3, "password_file": "x"}}`))
	f.Add([]byte("worker: &a\n  x: *a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		values, err := Read("f", data, settings)
		if err != nil {
			return
		}
		for _, v := range values {
			known := slices.ContainsFunc(settings, func(s Setting) bool { return s == v.Setting })
			if !known || v.Line < 0 || v.Kind != List && len(v.Values) != 1 {
				t.Errorf("value %+v", v)
			}
		}
	})
}

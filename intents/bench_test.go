package intents

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

var benchPayloads = []struct {
	name, intent string
	variant      Variant
	payload      string
}{
	{"empty", StatusPing, Task, `{}`},
	{"ping", StatusPing, Result, `{"pong":true,"ts":"2025-12-14T03:45:12.000Z"}`},
	{"fetch", ContextFetch, Task, `{"id":"01JFB2R1JZKQ9V3K8W8Y9W1F2A","corr":"01JFB2QX0K8X5K6ZJ9G2C0C1MW","hash":"sha256:a1b2c3"}`},
	{"cancel", TaskCancel, Task, `{"corr":"01JFB2QX0K8X5K6ZJ9G2C0C1MW","reason":"no longer needed"}`},
	{"probe", "ops.network.port.probe", Task, `{"source":"pve01","target":"10.0.0.7","port":8007,"timeout_ms":3000}`},
	{"wrong", "ops.network.port.probe", Task, `{"source":"pve01","target":7,"port":80070}`},
	{"list", CapabilityList, Result, `{"intents":[` + strings.Repeat(`"ops.network.port.probe",`, 99) + `"aee.status.ping"]}`},
}

func benchRegistry(b *testing.B) *Registry {
	r := NewRegistry()
	err := r.Register(Definition{Intent: "ops.network.port.probe", Task: json.RawMessage(`{"type":"object","required":["source","target","port"],"properties":{
		"source":{"type":"string"},"target":{"type":"string"},"port":{"type":"integer","minimum":1,"maximum":65535},"timeout_ms":{"type":"integer"}}}`)})
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func BenchmarkValidate(b *testing.B) {
	r := benchRegistry(b)
	for _, c := range benchPayloads {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			payload := json.RawMessage(c.payload)
			for b.Loop() {
				_ = r.Validate(c.intent, c.variant, payload)
			}
		})
	}
}

// BenchmarkLibrary measures the compiler's own validator on the same payloads, including
// the tree of maps that it needs.
func BenchmarkLibrary(b *testing.B) {
	r := benchRegistry(b)
	for _, c := range benchPayloads {
		s, err := jsonschema.CompileString("bench:///schema", string(r.Schema(c.intent, c.variant).JSON()))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d := json.NewDecoder(strings.NewReader(c.payload))
				d.UseNumber()
				var v any
				if err := d.Decode(&v); err != nil {
					b.Fatal(err)
				}
				_ = s.Validate(v)
			}
		})
	}
}

package envelope_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
)

// draftTask is the sample task of the AEE draft, section "Envelope Format",
// on one line as programs send it.
const draftTask = `{"v":"1","id":"01JFB2R1JZKQ9V3K8W8Y9W1F2A","ts":"2025-12-14T03:45:12Z","type":"task",` +
	`"from":"agent.manager","to":"agent.backup_auditor","intent":"ops.backup.status.check",` +
	`"corr":"01JFB2QX0K8X5K6ZJ9G2C0C1MW","reply_to":null,"trace":{"trace_id":"9f3c","span_id":"a12b"},` +
	`"priority":"high","requires":{"timeout_ms":30000,"evidence":true,"human_approval":false},` +
	`"payload":{"cluster":"node.lan","window":"24h"},"sig":null}`

// mustParse parses a valid envelope.
func mustParse(tb testing.TB, text string) *envelope.Envelope {
	tb.Helper()
	e, err := envelope.Parse([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// bigTask carries a payload of about 16 KiB.
func bigTask() string {
	var lines []string
	for i := range 300 {
		lines = append(lines, fmt.Sprintf(`{"line":%d,"score":0.%d,"text":"if err != nil {\n\treturn err // %d"}`, i, i+1, i))
	}
	return strings.Replace(draftTask, `"window":"24h"`, `"lines":[`+strings.Join(lines, ",")+`]`, 1)
}

func BenchmarkParse(b *testing.B) {
	for name, text := range map[string]string{"draft": draftTask, "16KiB": bigTask()} {
		b.Run(name, func(b *testing.B) {
			data := []byte(text)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := envelope.Parse(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	for name, text := range map[string]string{"draft": draftTask, "16KiB": bigTask()} {
		b.Run(name, func(b *testing.B) {
			e := mustParse(b, text)
			var buf []byte
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if buf, err = e.AppendJSON(buf[:0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCanonical(b *testing.B) {
	for name, text := range map[string]string{
		"sorted":   `{"cluster":"node.lan","limit":10,"ratio":0.25,"window":"24h"}`,
		"unsorted": `{"window":"24h","cluster":"node.lan","ratio":0.25,"limit":10}`,
		"spaced":   `{ "cluster": "node.lan", "limit": 10, "ratio": 0.25, "window": "24h" }`,
		"unicode":  `{"größe":"24h","name":"żółw","a":"é"}`,
		"16KiB":    string(payloadOf(bigTask())),
	} {
		b.Run(name, func(b *testing.B) {
			var buf []byte
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if buf, err = envelope.AppendCanonical(buf[:0], json.RawMessage(text)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func payloadOf(text string) json.RawMessage {
	e, err := envelope.Parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return e.Payload
}

func BenchmarkCBOR(b *testing.B) {
	e := mustParse(b, draftTask)
	data, err := e.AppendCBOR(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := e.AppendCBOR(nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := envelope.ParseCBOR(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkNewID(b *testing.B) {
	for b.Loop() {
		envelope.NewID()
	}
}

func BenchmarkHash(b *testing.B) {
	e := mustParse(b, draftTask)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Hash(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStandardLibrary is what encoding/json takes for the same text, to
// compare with.
func BenchmarkStandardLibrary(b *testing.B) {
	type wire struct {
		V, ID, TS, Type, From, To, Intent, Corr, Priority string
		ReplyTo                                           *string `json:"reply_to"`
		Trace, Requires, Payload, Sig                     json.RawMessage
	}
	data := []byte(draftTask)
	b.ReportAllocs()
	for b.Loop() {
		var w wire
		if err := json.Unmarshal(data, &w); err != nil {
			b.Fatal(err)
		}
	}
}

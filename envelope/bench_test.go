package envelope_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
)

// draftTask is the sample task of the AEE draft, section "Envelope Format", on one line,
// as programs send it.
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

// bigTask returns a task with a payload of about 16 KiB.
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

// BenchmarkStandardLibrary measures encoding/json on the same text, for comparison.
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

// hostileValues returns payload members of a megabyte that are expensive to decode, in
// JSON and in CBOR.
func hostileValues() map[string][2][]byte {
	const size = 1<<20 - 1000
	repeat := func(one string, open, end string) []byte {
		n := (size - len(open) - len(end)) / len(one)
		return []byte(open + strings.TrimSuffix(strings.Repeat(one, n), ",") + end)
	}
	cbor := func(one string) []byte {
		n := (size - 5) / len(one)
		return append([]byte{0x9a, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, strings.Repeat(one, n)...)
	}
	names := func(n int, entry func(int) string, open, end string) []byte {
		var b strings.Builder
		b.WriteString(open)
		for i := range n {
			b.WriteString(entry(i))
		}
		return append([]byte(strings.TrimSuffix(b.String(), ",")), end...)
	}
	const many = 100_000
	few := names(17, func(i int) string { return fmt.Sprintf(`"%c":0,`, 'a'+i) }, "{", "},")
	fewCBOR := names(17, func(i int) string { return "a" + string(rune('z'-i)) + "\x00" }, "\xb1", "")
	return map[string][2][]byte{
		"empty maps": {repeat("{},", "[", "]"), cbor("\xa0")},
		"integers":   {repeat("0,", "[", "]"), cbor("\x00")},
		"floats":     {repeat("5e-324,", "[", "]"), cbor("\xfb\x00\x0a\x0b\x0c\x0d\x0e\x0f\x01")},
		"names": {names(many, func(i int) string { return fmt.Sprintf(`"%05x":0,`, i*7919%many) }, "{", "}"),
			names(many, func(i int) string { return fmt.Sprintf("\x65%05x\x00", i*7919%many) }, "\xba\x00\x01\x86\xa0", "")},
		"maps of 17": {repeat(string(few), "[", "]"), cbor(string(fewCBOR))},
		"escapes":    {repeat(`\u0000`, `"`, `"`), append([]byte{0x7a, 0x00, 0x0f, 0xf0, 0x00}, make([]byte, 0xff000)...)},
	}
}

// BenchmarkHostile measures messages of a megabyte that are made to be expensive; finding
// 10 of the security review.
func BenchmarkHostile(b *testing.B) {
	for name, value := range hostileValues() {
		text := []byte(strings.Replace(draftTask, `"24h"`, string(value[0]), 1))
		e := mustParse(b, draftTask)
		e.Payload = json.RawMessage(`{"x":"@"}`)
		data, err := e.AppendCBOR(nil)
		if err != nil {
			b.Fatal(err)
		}
		data = bytes.Replace(data, []byte("\x61@"), value[1], 1)
		for kind, parse := range map[string]func() error{
			"JSON": func() error { _, err := envelope.Parse(text); return err },
			"CBOR": func() error { _, err := envelope.ParseCBOR(data); return err },
		} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.Logf("%.120v", parse())
				b.ReportAllocs()
				for b.Loop() {
					parse()
				}
			})
		}
	}
}

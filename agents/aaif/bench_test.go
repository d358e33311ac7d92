package aaif

import (
	"bytes"
	"testing"
)

// midsize is our full definition, about 7 kB of JSON, in a format.
func midsize(b *testing.B, format Format) []byte {
	b.Helper()
	data, err := mustParse(b, fullDocuments(b)["agent.json"], Options{}).Encode(format)
	if err != nil {
		b.Fatal(err)
	}
	return data
}

func BenchmarkParse(b *testing.B) {
	for _, format := range []Format{JSON, YAML, CBOR} {
		b.Run(string(format), func(b *testing.B) {
			data := midsize(b, format)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(data, Options{Format: format}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRefuse(b *testing.B) {
	data := bytes.Replace(midsize(b, JSON), []byte(`"draft"`), []byte(`"drift"`), 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(data, Options{Format: JSON}); err == nil {
			b.Fatal("accepted")
		}
	}
}

func BenchmarkLint(b *testing.B) {
	doc := mustParse(b, midsize(b, JSON), Options{})
	b.ReportAllocs()
	for b.Loop() {
		doc.Lint()
	}
}

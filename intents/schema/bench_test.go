package schema

import (
	"os"
	"testing"
)

func BenchmarkCompile(b *testing.B) {
	raw, err := os.ReadFile("../aee.validate.payload.task.schema.json")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(raw); err != nil {
			b.Fatal(err)
		}
	}
}

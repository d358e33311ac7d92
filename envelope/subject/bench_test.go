package subject_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/envelope/subject"
)

var sink string

func BenchmarkLive(b *testing.B) {
	m := mustNew(b, "")
	b.ReportAllocs()
	for b.Loop() {
		sink, _ = m.Live("agent.backup_auditor")
	}
}

func BenchmarkReply(b *testing.B) {
	m := mustNew(b, "acme")
	b.ReportAllocs()
	for b.Loop() {
		sink, _ = m.Reply("agent.backup_auditor", "01JFB2R1JZKQ9V3K8W8Y9W1F2A")
	}
}

func BenchmarkParse(b *testing.B) {
	m := mustNew(b, "acme")
	s, _ := m.Reply("agent.backup_auditor", "01JFB2R1JZKQ9V3K8W8Y9W1F2A")
	b.ReportAllocs()
	for b.Loop() {
		a, err := m.Parse(s)
		if err != nil {
			b.Fatal(err)
		}
		sink = a.ID
	}
}

func BenchmarkEscape(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		sink = subject.Escape("urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	}
}

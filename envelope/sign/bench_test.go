package sign

import (
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// draftTask is the sample task of the AEE draft, section "Envelope Format".
const draftTask = `{
  "v": "1",
  "id": "01JFB2R1JZKQ9V3K8W8Y9W1F2A",
  "ts": "2025-12-14T03:45:12Z",
  "type": "task",
  "from": "agent.manager",
  "to": "agent.backup_auditor",
  "intent": "ops.backup.status.check",
  "corr": "01JFB2QX0K8X5K6ZJ9G2C0C1MW",
  "reply_to": null,
  "trace": {"trace_id": "9f3c", "span_id": "a12b"},
  "priority": "high",
  "requires": {
    "timeout_ms": 30000,
    "evidence": true,
    "human_approval": false
  },
  "payload": {"cluster": "node.lan", "window": "24h"},
  "sig": null
}`

func sampleTask(tb testing.TB) *envelope.Envelope {
	tb.Helper()
	e, err := envelope.Parse([]byte(draftTask))
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

func BenchmarkAppendSigned(b *testing.B) {
	e := sampleTask(b)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = AppendSigned(buf[:0], e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	for _, alg := range []Alg{Ed25519, HS256} {
		b.Run(string(alg), func(b *testing.B) {
			s, _, err := NewKey("k", alg, ">")
			if err != nil {
				b.Fatal(err)
			}
			e := sampleTask(b)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Sign(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, alg := range []Alg{Ed25519, HS256} {
		b.Run(string(alg), func(b *testing.B) {
			s, k, err := NewKey("k", alg, ">")
			if err != nil {
				b.Fatal(err)
			}
			var ring Ring
			if err := ring.Put(Local, k); err != nil {
				b.Fatal(err)
			}
			e := sampleTask(b)
			if err := s.Sign(e); err != nil {
				b.Fatal(err)
			}
			now := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ring.Verify(e, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEd25519 compares this package's verification with the standard library's.
func BenchmarkEd25519(b *testing.B) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	public := private.Public().(ed25519.PublicKey)
	message := make([]byte, 400)
	sig := ed25519.Sign(private, message)
	b.Run("sign/std", func(b *testing.B) {
		for b.Loop() {
			ed25519.Sign(private, message)
		}
	})
	b.Run("verify/std", func(b *testing.B) {
		for b.Loop() {
			ed25519.Verify(public, message, sig)
		}
	})
	for name, tables := range map[string]int32{"verify/plain": 0, "verify/table": 1} {
		b.Run(name, func(b *testing.B) {
			k, err := newPublicKey(public)
			if err != nil {
				b.Fatal(err)
			}
			left := tablesLeft(tables)
			for b.Loop() {
				if !k.verify(message, sig, left) {
					b.Fatal("good signature refused")
				}
			}
		})
	}
}

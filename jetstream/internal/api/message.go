package api

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/nats-io/nats.go"
)

// A Message is a stored message.
type Message struct {
	Subject string
	Header  nats.Header // nil if there are none
	Data    []byte
	Time    time.Time // when the server stored it
	Stream  string
	Seq     uint64
}

// Genuine reports whether a user published the message on the subject where it is stored, or
// the server put a deletion marker there. An answer of the server is not genuine.
func (m Message) Genuine() bool { return genuine(m.Header, m.Data) }

// Deleted reports whether a message is the marker of a deletion.
func Deleted(h nats.Header) bool {
	op := h.Get("KV-Operation")
	return op == "DEL" || op == "PURGE" || h.Get("Nats-Marker-Reason") != ""
}

// Digest returns the SHA-256 of data, as headers and records have it.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

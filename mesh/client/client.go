package client

import (
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/state"
)

// Client sends tasks, live and durable, and reads what became of them. Its methods may be
// called from many goroutines.
type Client struct {
	cfg             Config
	s               *sender.Sender
	defaultRequires json.RawMessage // requires with DefaultTimeout only: the most common value, encoded once
}

// Config configures a [Client]. Package mesh makes it of the configuration of a node.
type Config struct {
	Sender         *sender.Sender
	Entity         string        // the from of envelopes that the client itself makes
	DefaultTimeout time.Duration // of tasks without requires.timeout_ms
	Skew           time.Duration // how far a ts may differ from a clock; at most 0: any
	Tracer         trace.Tracer  // nil: no spans
	Stores         *Stores       // nil: no durable lane
}

// Stores are those of the durable lane that a client uses.
type Stores struct {
	Queue     *jetstream.Queue
	Replies   *jetstream.Replies
	Dead      *jetstream.Dead
	States    state.Store
	Clock     *jetstream.Clock
	Inbox     *jetstream.Inbox // nil: there are no inboxes of people
	Codec     state.Codec
	Available func() bool // the streams exist
}

// New makes a client. It does no I/O.
func New(cfg Config) *Client {
	return &Client{cfg: cfg, s: cfg.Sender, defaultRequires: envelope.Requirements{Timeout: cfg.DefaultTimeout}.AppendJSON(nil)}
}

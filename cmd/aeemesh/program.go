package main

import (
	"context"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
)

// progApp is one execution of the program: its streams, its environment, and the
// flags that many commands share.
type progApp struct {
	version string // of aeemesh
	stdin   io.Reader
	env     func(string) string
	term    *term.Terminal
	log     *slog.Logger
	began   bool              // a command's own work has begun: errors are no longer of usage
	byEnv   map[string]bool   // flags whose value is from the environment
	byFile  map[string]string // flags whose value is from the configuration file, and its place there
	conn    connectFlags
	sign    signFlags
	levels  logFlags

	telemetry func(context.Context) (*telemetryOf, error) // starts the exporters that the environment configures

	documents   []string // a worker's, that its configuration file names
	stateKeys   []string // references to the keys of checkpoints
	as          string   // the sender, for commands that make their own envelopes
	speaker     string   // the entity of the connection, if known
	platform    string   // this mesh's name for other platforms
	acceptClear bool     // with state keys: accept unsealed checkpoints
	issuers     []string // issuers that may transfer runs of any agent
	anyVersion  bool     // accept runs of any version of their agent
	perIssuer   int      // MiB of handoffs that are kept per issuer; 0: the default
}

// telemetryOf is where the spans and metrics of a node go; nil members: nowhere.
type telemetryOf struct {
	tracer trace.TracerProvider
	meter  metric.MeterProvider
	stop   func() // exports what is left
}

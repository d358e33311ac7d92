package session

import (
	"context"
	"io"
	"log/slog"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
)

// App is one execution of the program: its streams, its environment, and the
// flags that many commands share.
type App struct {
	Version string // of aeemesh
	Stdin   io.Reader
	Env     Environment
	Term    *term.Terminal
	Log     *slog.Logger
	Began   bool              // a command's own work has begun: errors are no longer of usage
	ByEnv   map[string]bool   // flags whose value is from the environment
	ByFile  map[string]string // flags whose value is from the configuration file, and its place there
	Conn    connectFlags
	Sign    signFlags
	Levels  logFlags

	StartTelemetry func(context.Context) (*Telemetry, error) // starts the exporters that the environment configures
	AwaitsKeys     func(*nats.Conn)                          // called before a process reads the mesh's shared keys, which may take long; may be nil

	Documents   []string // a worker's, that its configuration file names
	StateKeys   []string // references to the keys of checkpoints
	As          string   // the sender, for commands that make their own envelopes
	speaker     string   // the entity of the connection, if known
	Platform    string   // this mesh's name for other platforms
	AcceptClear bool     // with state keys: accept unsealed checkpoints
	Issuers     []string // issuers that may transfer runs of any agent
	AnyVersion  bool     // accept runs of any version of their agent
	PerIssuer   int      // MiB of handoffs that are kept per issuer; 0: the default
}

// Telemetry is where the spans and metrics of a node go; nil members: nowhere.
type Telemetry struct {
	Tracer trace.TracerProvider
	Meter  metric.MeterProvider
	Stop   func() // exports what is left
}

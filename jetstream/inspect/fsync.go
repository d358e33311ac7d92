package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Fsync says how durable an acknowledged message is.
type Fsync struct {
	Class    FsyncClass
	Interval time.Duration // FsyncInterval only
	Why      string        // how the class was determined, or why it was not
	Domain   string        // the JetStream domain of the server that told it
}

// FsyncClass says when the server calls fsync.
type FsyncClass string

// The fsync classes.
const (
	// FsyncAlways: before each acknowledgement. An acknowledged message is on the disk.
	FsyncAlways FsyncClass = "always"
	// FsyncInterval: periodically. A machine failure loses what was acknowledged since
	// the last fsync.
	FsyncInterval FsyncClass = "interval"
	// FsyncUnknown: this connection may not ask. Assume two minutes, nats-server's
	// default.
	FsyncUnknown FsyncClass = "unknown"
)

// AskFsync asks the server that nc is connected to for its fsync class. The server
// answers the system account only: for other accounts the class is unknown, after half a
// second at most. Nothing is asked on a subject of which may says that this user may not
// publish to it: the server would log it.
func AskFsync(ctx context.Context, nc *nats.Conn, may func(subject string) bool) Fsync {
	const why = "the server tells its sync_interval only to the system account ($SYS.REQ.SERVER.PING.JSZ) and on its monitoring port (/jsz)"
	ask := "$SYS.REQ.SERVER." + nc.ConnectedServerId() + ".JSZ"
	if !may(ask) {
		return Fsync{Class: FsyncUnknown, Why: why}
	}
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	msg, err := nc.RequestWithContext(ctx, ask, nil)
	if err != nil {
		return Fsync{Class: FsyncUnknown, Why: why}
	}
	var reply struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(msg.Data, &reply); err != nil {
		return Fsync{Class: FsyncUnknown, Why: why}
	}
	f, err := ParseJSZ(reply.Data)
	if err != nil {
		return Fsync{Class: FsyncUnknown, Why: err.Error()}
	}
	f.Why = "the server said so on the system account"
	return f
}

// ParseJSZ reads the fsync class from the /jsz answer of a server's monitoring port.
func ParseJSZ(body []byte) (Fsync, error) {
	var jsz struct {
		Disabled bool `json:"disabled"`
		Config   *struct {
			SyncInterval time.Duration `json:"sync_interval"`
			SyncAlways   bool          `json:"sync_always"`
			Domain       string        `json:"domain"`
		} `json:"config"`
	}
	if err := json.Unmarshal(body, &jsz); err != nil {
		return Fsync{Class: FsyncUnknown}, fmt.Errorf("read /jsz: %w", err)
	}
	const why = "/jsz says so"
	switch {
	case jsz.Disabled || jsz.Config == nil:
		return Fsync{Class: FsyncUnknown}, errors.New("read /jsz: the server has no jetstream")
	case jsz.Config.SyncAlways:
		return Fsync{Class: FsyncAlways, Why: why, Domain: jsz.Config.Domain}, nil
	case jsz.Config.SyncInterval > 0:
		return Fsync{Class: FsyncInterval, Interval: jsz.Config.SyncInterval, Why: why, Domain: jsz.Config.Domain}, nil
	}
	return Fsync{Class: FsyncUnknown}, errors.New("read /jsz: it has no sync_interval")
}

// probeEntity is the entity under which [ProbeAck] stores ids.
const probeEntity = "service.probe"

// ProbeAck stores n small records in the bucket of seen ids, one after another, and
// returns the median time to an acknowledgement. The records expire after a second.
//
// The result is only a hint at the fsync class: fsync takes a fraction of a millisecond
// on some disks and many milliseconds on others, and network latency hides it.
func ProbeAck(ctx context.Context, js natsjs.JetStream, m subject.Map, n int) (time.Duration, error) {
	// Across a leaf node, no server answers a write to a bucket that the domain lacks.
	if api.KeyPrefix(js) != "" {
		if _, err := api.InfoOf(ctx, js, "KV_"+jetstream.BucketSeen+m.Suffix()); errors.Is(err, jetstream.ErrNotFound) {
			return 0, err
		}
	}
	ids := seen.New(js, m, time.Second)
	took := make([]time.Duration, max(n, 1))
	start := time.Now()
	for i := range took {
		id := fmt.Sprintf("probe-%d-%d", start.UnixNano(), i)
		before := time.Now()
		if _, err := ids.Claim(ctx, probeEntity, id, "probe"); err != nil {
			return 0, err
		}
		took[i] = time.Since(before)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Report is the result of [Inspect].
type Report struct {
	Server  string `json:"server"` // its name
	Version string `json:"version"`

	// Enabled says whether this account may use JetStream. If not, Reason says why, and
	// the other fields are empty.
	Enabled bool   `json:"enabled"`
	Reason  string `json:"reason,omitempty"`

	Account *Account `json:"account,omitempty"`
	Streams []Change `json:"streams,omitempty"` // as [Plan] has them
	Races   []Race   `json:"races,omitempty"`
	Fsync   Fsync    `json:"fsync"`
}

// Account is what this account uses of JetStream and its limits, in bytes and counts. A
// limit of -1 is none.
type Account struct {
	Domain       string `json:"domain,omitempty"`
	Memory       uint64 `json:"memory"`
	MaxMemory    int64  `json:"max_memory"`
	Storage      uint64 `json:"storage"`
	MaxStorage   int64  `json:"max_storage"`
	Streams      int    `json:"streams"`
	MaxStreams   int    `json:"max_streams"`
	Consumers    int    `json:"consumers"`
	MaxConsumers int    `json:"max_consumers"`
}

// A Race is a stream that acknowledges messages on subjects that carry requests: a
// requester gets either the stream's acknowledgement or the agent's answer, whichever is
// faster.
type Race struct {
	Stream   string   `json:"stream"`
	Subjects []string `json:"subjects"` // the subjects of the stream that capture requests
}

// Fsync says how durable an acknowledged message is.
type Fsync struct {
	Class    FsyncClass    `json:"class"`
	Interval time.Duration `json:"interval,omitempty"` // FsyncInterval only
	Why      string        `json:"why"`                // how the class was found out, or why it could not be
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

// Inspect examines the JetStream of one mesh and changes nothing. Problems of JetStream
// are in the report; the error says what kept Inspect from examining it.
func Inspect(ctx context.Context, js natsjs.JetStream, opts Options) (Report, error) {
	nc := js.Conn()
	r := Report{Server: nc.ConnectedServerName(), Version: nc.ConnectedServerVersion(), Fsync: Fsync{Class: FsyncUnknown, Why: "jetstream is not available"}}
	info, err := api.Asking(ctx, js, `INFO"`, js.AccountInfo)
	if err = api.Explain(nc, err, "ask for the account's limits"); Off(err) {
		r.Reason = err.Error()
		return r, nil
	} else if err != nil {
		return r, err
	}
	r.Enabled = true
	r.Account = &Account{
		Domain: info.Domain, Memory: info.Memory, MaxMemory: info.Limits.MaxMemory, Storage: info.Store, MaxStorage: info.Limits.MaxStore,
		Streams: info.Streams, MaxStreams: info.Limits.MaxStreams, Consumers: info.Consumers, MaxConsumers: info.Limits.MaxConsumers,
	}
	r.Fsync = AskFsync(ctx, nc)
	if r.Streams, err = Plan(ctx, js, opts); err != nil {
		return r, err
	}
	r.Races, err = races(ctx, js, opts.Map)
	return r, err
}

// races finds streams that acknowledge on subjects that carry requests.
func races(ctx context.Context, js natsjs.JetStream, m subject.Map) ([]Race, error) {
	lanes := append(m.AllLive(), m.AllAsk(), m.AllCtl(), m.AllBus())
	found := map[string][]string{}
	for _, lane := range lanes {
		list := js.ListStreams(ctx, natsjs.WithStreamListSubject(lane))
		for info := range list.Info() {
			if info.Config.NoAck {
				continue
			}
			for _, s := range info.Config.Subjects {
				if subject.Overlap(s, lane) && !slices.Contains(found[info.Config.Name], s) {
					found[info.Config.Name] = append(found[info.Config.Name], s)
				}
			}
		}
		if err := list.Err(); err != nil {
			return nil, api.Explain(js.Conn(), err, "list streams")
		}
	}
	var races []Race
	for name, subjects := range found {
		races = append(races, Race{name, subjects})
	}
	sort.Slice(races, func(i, j int) bool { return races[i].Stream < races[j].Stream })
	return races, nil
}

// AskFsync asks the server that nc is connected to for its fsync class. The server
// answers the system account only: for other accounts the class is unknown, after half a
// second at most.
func AskFsync(ctx context.Context, nc *nats.Conn) Fsync {
	const why = "the server tells its sync_interval only to the system account ($SYS.REQ.SERVER.PING.JSZ) and on its monitoring port (/jsz)"
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	msg, err := nc.RequestWithContext(ctx, "$SYS.REQ.SERVER."+nc.ConnectedServerId()+".JSZ", nil)
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
		return Fsync{Class: FsyncAlways, Why: why}, nil
	case jsz.Config.SyncInterval > 0:
		return Fsync{Class: FsyncInterval, Interval: jsz.Config.SyncInterval, Why: why}, nil
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
		if _, err := api.InfoOf(ctx, js, "KV_"+BucketSeen+m.Suffix()); errors.Is(err, ErrNotFound) {
			return 0, err
		}
	}
	seen := NewSeen(js, m, time.Second)
	took := make([]time.Duration, max(n, 1))
	start := time.Now()
	for i := range took {
		id := fmt.Sprintf("probe-%d-%d", start.UnixNano(), i)
		before := time.Now()
		if _, err := seen.Claim(ctx, probeEntity, id, "probe"); err != nil {
			return 0, err
		}
		took[i] = time.Since(before)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

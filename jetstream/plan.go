package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/quorum"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// An Action says what has to be done, or was done, to a stream or consumer.
type Action string

// The actions of a [Change].
const (
	ActionNone     Action = "none"     // it is as it should be
	ActionCreate   Action = "create"   // it is missing
	ActionUpdate   Action = "update"   // something in it that the mesh relies on differs
	ActionConflict Action = "conflict" // it cannot be changed without destroying something
	ActionNewer    Action = "newer"    // a newer aeemesh made it; it is not touched
)

// A Change says what has to be done, or was done, to one stream, bucket or consumer.
type Change struct {
	Name        string       `json:"name"` // with the suffix: AEE_BUS_acme
	Kind        Kind         `json:"kind"`
	About       string       `json:"about"`
	Action      Action       `json:"action"`
	Version     int          `json:"version,omitempty"` // of the topology that made it; 0: it does not exist, or aeemesh did not make it
	Differences []Difference `json:"differences,omitempty"`

	// Group is the servers that keep the stream; nil if it does not exist or has one replica.
	Group *quorum.Group `json:"group,omitempty"`

	// Reserves is how many more bytes of storage the change reserves on each replica.
	Reserves int64 `json:"reserves,omitempty"`

	workers  int // [MetaWorkers]
	spec     Spec
	want     natsjs.StreamConfig
	ofWorker ConsumerSpec
	consumer natsjs.ConsumerConfig
}

// A Difference is one setting that differs from the topology.
type Difference struct {
	Field string `json:"field"`
	Have  string `json:"have"`
	Want  string `json:"want"`
	// Kept says why the setting is not changed. Empty: it has to be, or was, changed.
	Kept string `json:"kept,omitempty"`
	// Asked: the options name the setting, so a report mentions it even if it is kept.
	Asked bool `json:"asked,omitempty"`
	// Breaks: the setting breaks a promise of the mesh, and [Apply] does not correct it.
	Breaks bool `json:"breaks,omitempty"`
}

// Refuses reports whether the stream was made by a newer aeemesh that refuses durable work
// by workers of this one, and the oldest topology that a worker must know.
func (c Change) Refuses() (oldest int, refuses bool) {
	return c.workers, c.Action == ActionNewer && c.workers > TopologyVersion
}

// String describes the change in one line: "update AEE_BUS: no_ack false, should be
// true".
func (c Change) String() string {
	var b strings.Builder
	b.WriteString(string(c.Action) + " " + c.Name)
	for i, d := range c.Differences {
		b.WriteString([]string{": ", "; "}[min(i, 1)])
		fmt.Fprintf(&b, "%s %s, should be %s", d.Field, d.Have, d.Want)
		if d.Kept != "" {
			b.WriteString(" (" + d.Kept + ")")
		}
	}
	return b.String()
}

// Plan compares the server with the topology, and returns the changes that would remove the
// differences. If a newer aeemesh made any stream or consumer, Plan plans no changes.
func Plan(ctx context.Context, js natsjs.JetStream, opts Options) ([]Change, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	consumers, err := opts.consumers()
	if err != nil {
		return nil, err
	}
	var changes []Change
	for _, spec := range opts.specs() {
		c, err := planOne(ctx, js, opts, spec)
		if err != nil {
			return changes, err
		}
		changes = append(changes, c)
	}
	for _, spec := range consumers {
		c, err := planConsumer(ctx, js, opts, spec)
		if err != nil {
			return changes, err
		}
		changes = append(changes, c)
	}
	leaveNewer(changes)
	return changes, nil
}

// leaveNewer cancels all changes if one stream or consumer is of a newer release: what
// seems to be missing or different may be as that release wants it.
func leaveNewer(changes []Change) {
	if !slices.ContainsFunc(changes, func(c Change) bool { return c.Action == ActionNewer }) {
		return
	}
	for i := range changes {
		if a := changes[i].Action; a == ActionCreate || a == ActionUpdate {
			changes[i].Action = ActionNewer
			changes[i].Differences = []Difference{{Field: "topology", Have: "newer", Want: strconv.Itoa(TopologyVersion), Kept: "a newer aeemesh manages this mesh"}}
		}
	}
}

func planOne(ctx context.Context, js natsjs.JetStream, opts Options, spec Spec) (Change, error) {
	c := Change{Name: spec.FullName(opts.Map), Kind: spec.Kind, About: spec.About, spec: spec}
	ctx, cancel := opts.bound(ctx)
	defer cancel()
	stream, err := api.Asking(ctx, js, "STREAM.INFO."+spec.StreamName(opts.Map)+`"`, func(ctx context.Context) (natsjs.Stream, error) {
		return js.Stream(ctx, spec.StreamName(opts.Map))
	})
	if errors.Is(err, natsjs.ErrStreamNotFound) {
		c.Action, c.want = ActionCreate, fresh(opts, allowed(ctx, js, spec, max(opts.Replicas, 1), 0))
		c.Reserves = max(c.want.MaxBytes, 0)
		return c, nil
	}
	if err != nil {
		return c, api.Explain(js.Conn(), err, "look at %s", c.Name)
	}
	have := stream.CachedInfo().Config
	c.compare(opts, allowed(ctx, js, spec, cmp.Or(opts.Replicas, have.Replicas), have.MaxConsumers), stream.CachedInfo())
	if g := quorum.Of(stream.CachedInfo()); g.Replicated() {
		c.Group = &g
	}
	return c, nil
}

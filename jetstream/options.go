package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Options say which mesh a topology is for, and on what storage.
type Options struct {
	// Map gives the subjects and, by its prefix, the names. Zero: no prefix.
	Map subject.Map

	// Replicas of each stream: 1, 3 or 5. 0: 1 for a new stream, unchanged for an
	// existing one.
	Replicas int

	// Storage of new streams. The zero value is file storage. The storage of an existing
	// stream cannot be changed.
	Storage natsjs.StorageType

	// Placement says in which cluster, and on servers with which tags, the streams are.
	// Nil: the server decides for a new stream, and an existing one stays. An existing
	// stream is moved with its messages.
	Placement *natsjs.Placement

	// Limits by [Spec] name replace those of the topology for new streams, and those of
	// existing streams. A lower limit is not applied if it would drop messages that the
	// stream holds; the report says so ([Change.NotDone]). Limits that would drop
	// accepted tasks are refused: a maximum age of [StreamWork], and any limit of
	// [StreamSchedule].
	Limits map[string]Limits

	// Only names the Specs to look at. Nil: all.
	Only []string

	// Entities names the entities whose work consumers are checked too, after the streams, and
	// after a consumer that keeps delayed tasks. Workers create the consumers of their own
	// entities, unless the operator forbids it.
	Entities []string

	// Lease is the AckWait of new and existing work consumers. 0: [DefaultLease] for a
	// new consumer, unchanged for an existing one.
	Lease time.Duration

	// Wait is the timeout of each request. 0: 5 s. A server does not answer requests that
	// permissions forbid.
	Wait time.Duration

	// Done, if not nil, is called with each change that [Apply] has made or found
	// unnecessary, in order.
	Done func(Change)
}

// Limits are a stream's limits. 0 keeps the topology's limit, -1 removes it.
type Limits struct {
	MaxAge   time.Duration `json:"max_age,omitempty"`
	MaxBytes int64         `json:"max_bytes,omitempty"`
}

// Validate reports everything that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Replicas != 0 && o.Replicas != 1 && o.Replicas != 3 && o.Replicas != 5 {
		bad("replicas %d: must be 1, 3 or 5", o.Replicas)
	}
	if o.Lease != 0 && o.Lease < time.Second {
		bad("lease %s: must be a second or more", o.Lease)
	}
	specs := map[string]Spec{}
	var names []string
	for _, s := range Topology() {
		specs[s.Name] = s
		names = append(names, s.Name)
	}
	for _, name := range o.Only {
		if _, known := specs[name]; !known {
			bad("%q is not a stream or bucket of the mesh: %s", name, strings.Join(names, ", "))
		}
	}
	for name, l := range o.Limits {
		spec, known := specs[name]
		if !known {
			bad("limits of %q: it is not a stream or bucket of the mesh: %s", name, strings.Join(names, ", "))
			continue
		}
		if spec.Config.Retention == natsjs.WorkQueuePolicy && l.MaxAge > 0 {
			bad("max_age of %s: tasks that wait for longer would be dropped without notice", name)
		}
		if spec.Config.Retention == natsjs.WorkQueuePolicy && spec.Config.Discard == natsjs.DiscardOld && l.MaxBytes > 0 {
			bad("max_bytes of %s: beyond it the oldest tasks would be dropped without notice", name)
		}
	}
	for _, e := range o.Entities {
		if err := subject.ValidateEntity(e); err != nil {
			errs = append(errs, err)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// bound returns ctx with the timeout of one request.
func (o Options) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(o.Wait, api.RequestTimeout))
}

// specs returns the streams and buckets to check.
func (o Options) specs() []Spec {
	return slices.DeleteFunc(Topology(), func(s Spec) bool { return o.Only != nil && !slices.Contains(o.Only, s.Name) })
}

// consumers returns the consumers to check.
func (o Options) consumers() ([]ConsumerSpec, error) {
	var all []ConsumerSpec
	if len(o.Entities) > 0 && (o.Only == nil || slices.Contains(o.Only, StreamSchedule)) {
		all = append(all, keeper(o.Map))
	}
	for _, e := range o.Entities {
		specs, err := Consumers(o.Map, e, o.Lease)
		if err != nil {
			return nil, err
		}
		for _, s := range specs {
			if o.Only == nil || slices.Contains(o.Only, s.Stream) {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

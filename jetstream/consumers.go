package jetstream

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// DefaultLease is how long a worker may go without renewing a task before the server
// redelivers it to another one: the AckWait of a new work consumer.
const DefaultLease = 3 * time.Second

// KindConsumer is the kind of a [Change] to a consumer.
const KindConsumer Kind = "consumer"

// A ConsumerSpec is one durable pull consumer, shared by all workers of an
// entity.
type ConsumerSpec struct {
	Stream   string // the name of its [Spec]: StreamWork or StreamSchedule
	Entity   string // "" for the keeper of delayed tasks
	Priority string // "" for a consumer of StreamSchedule
	About    string

	Config natsjs.ConsumerConfig
}

// Consumers returns the consumers of an entity: one on [StreamWork] for each
// priority, highest first, and one on [StreamSchedule]. lease 0 is
// [DefaultLease].
func Consumers(m subject.Map, entity string, lease time.Duration) ([]ConsumerSpec, error) {
	var specs []ConsumerSpec
	for _, p := range draws {
		c, err := WorkConsumer(m, p.name, entity, lease)
		if err != nil {
			return nil, err
		}
		specs = append(specs, c)
	}
	due, err := DueConsumer(m, entity)
	return append(specs, due), err
}

// WorkConsumer returns the consumer of an entity's tasks of one priority.
//
// It redelivers without limit: the worker decides how often a task may fail, because it
// knows the reason. It has no limit of unacknowledged messages, because at the limit a
// no_wait pull hangs; workers ask for no more than they have room for. It accepts 4,096
// waiting pulls, and drops further ones silently; that number cannot be changed later.
func WorkConsumer(m subject.Map, priority, entity string, lease time.Duration) (ConsumerSpec, error) {
	filter, err := m.Work(priority, entity)
	if err != nil {
		return ConsumerSpec{}, err
	}
	if lease <= 0 {
		lease = DefaultLease
	}
	about := priority + " tasks of " + entity
	return ConsumerSpec{
		Stream: StreamWork, Entity: entity, Priority: priority, About: about,
		Config: consumer(priority+"-"+consumerToken(entity), about, filter, lease),
	}, nil
}

// DueConsumer returns the consumer of an entity's delayed tasks that have fallen due. The
// worker that draws one moves it to [StreamWork].
func DueConsumer(m subject.Map, entity string) (ConsumerSpec, error) {
	filter, err := m.DueOf(entity)
	if err != nil {
		return ConsumerSpec{}, err
	}
	about := "delayed tasks of " + entity + " that fall due"
	return ConsumerSpec{
		Stream: StreamSchedule, Entity: entity, About: about,
		Config: consumer("due-"+consumerToken(entity), about, filter, 30*time.Second),
	}, nil
}

// keeper returns the consumer that keeps delayed tasks in the stream. No worker draws from it. In
// a work queue, an acknowledgement on any consumer removes a message, even one that was never
// delivered, unless another consumer still needs it. So without the keeper a worker that may
// acknowledge its own due tasks could remove the tasks of others.
func keeper(m subject.Map) ConsumerSpec {
	const about = "keeps delayed tasks until they fall due; nothing is drawn from it"
	return ConsumerSpec{Stream: StreamSchedule, About: about, Config: consumer("keep", about, m.AllSchedule(), 30*time.Second)}
}

func consumer(name, about, filter string, ackWait time.Duration) natsjs.ConsumerConfig {
	return natsjs.ConsumerConfig{
		Name: name, Durable: name, Description: "aeemesh: " + about, FilterSubject: filter,
		AckPolicy: natsjs.AckExplicitPolicy, DeliverPolicy: natsjs.DeliverAllPolicy, ReplayPolicy: natsjs.ReplayInstantPolicy,
		AckWait: ackWait, MaxDeliver: -1, MaxAckPending: -1, MaxWaiting: 4096,
		Metadata:       map[string]string{MetaTopology: strconv.Itoa(TopologyVersion)},
		PriorityPolicy: natsjs.PriorityPolicyOverflow, PriorityGroups: []string{drawGroup},
	}
}

// drawGroup is the priority group that each request for tasks names. The server refuses
// requests without it ("Priority Group missing"), so that workers of releases before
// topology 8, which name none, draw nothing; and those with another one ("Invalid Priority
// Group"). A release that raises [oldestWorkers] has another group. The policy that goes
// with groups changes nothing else: no request sets a minimum of what is pending.
var drawGroup = "topology-" + strconv.Itoa(oldestWorkers)

// consumerToken returns the token of an entity in a consumer's name: the escaped entity,
// or a prefix of it and a hash if it is too long for a file name. An escaped entity
// contains no '~'.
func consumerToken(entity string) string {
	const most = 200
	token := subject.Escape(entity)
	if len(token) <= most {
		return token
	}
	sum := sha256.Sum256([]byte(entity))
	return token[:most-33] + "~" + hex.EncodeToString(sum[:16])
}

// Name returns the stream and the consumer: "AEE_WORK/normal-agent=2Ex".
func (c ConsumerSpec) Name(m subject.Map) string { return c.StreamName(m) + "/" + c.Config.Durable }

// StreamName is the name of the consumer's stream in m's mesh.
func (c ConsumerSpec) StreamName(m subject.Map) string { return c.Stream + m.Suffix() }

// EnsureConsumer returns the consumer. With create it creates a missing consumer and
// updates one that differs. Without create it changes nothing: a missing consumer is
// [ErrNotFound], and one that differs is returned as it is.
//
// It does not change the lease of an existing consumer, which the operator may have set;
// the consumer's info has it as AckWait.
func EnsureConsumer(ctx context.Context, js natsjs.JetStream, m subject.Map, spec ConsumerSpec, create bool) (natsjs.Consumer, error) {
	if create {
		opts := Options{Map: m}
		c, err := planConsumer(ctx, js, opts, spec)
		if err == nil {
			c, err = applyConsumer(ctx, js, opts, c)
		}
		if err != nil {
			return nil, err
		}
		if c.Action == ActionConflict {
			return nil, errors.New(c.String())
		}
	}
	cons, err := lookAt(ctx, js, m, spec)
	return cons, api.Explain(js.Conn(), err, "open %s", spec.Name(m))
}

func lookAt(ctx context.Context, js natsjs.JetStream, m subject.Map, spec ConsumerSpec) (natsjs.Consumer, error) {
	stream := spec.StreamName(m)
	return api.Asking(ctx, js, "CONSUMER.INFO."+stream+"."+spec.Config.Durable+`"`, func(ctx context.Context) (natsjs.Consumer, error) {
		return js.Consumer(ctx, stream, spec.Config.Durable)
	})
}

func planConsumer(ctx context.Context, js natsjs.JetStream, opts Options, spec ConsumerSpec) (Change, error) {
	c := Change{Name: spec.Name(opts.Map), Kind: KindConsumer, About: spec.About, ofWorker: spec}
	ctx, cancel := opts.bound(ctx)
	defer cancel()
	cons, err := lookAt(ctx, js, opts.Map, spec)
	switch {
	case errors.Is(err, natsjs.ErrConsumerNotFound), errors.Is(err, natsjs.ErrStreamNotFound):
		c.Action, c.consumer = ActionCreate, spec.Config
		return c, nil
	case errors.Is(err, natsjs.ErrNotPullConsumer):
		c.Action = ActionConflict
		c.differ("deliver_subject", "set", "none", "a push consumer has the name")
		return c, nil
	case err != nil:
		return c, api.Explain(js.Conn(), err, "look at %s", c.Name)
	}
	c.compareConsumer(opts, spec.Config, cons.CachedInfo().Config)
	return c, nil
}

// compareConsumer finds the differences between a consumer and its spec. A difference
// that the mesh cannot work with, and that nats-server cannot change on an existing
// consumer, is a conflict.
func (c *Change) compareConsumer(opts Options, want, have natsjs.ConsumerConfig) {
	const kept = "it cannot be changed without making the consumer anew"
	next := have
	if c.newer(have.Metadata) {
		return
	}
	if have.AckPolicy != want.AckPolicy {
		c.differ("ack_policy", have.AckPolicy.String(), want.AckPolicy.String(), kept)
	}
	if len(c.Differences) > 0 {
		c.Action = ActionConflict
		return
	}
	c.version(have.Metadata, &next.Metadata)
	if have.FilterSubject != want.FilterSubject || len(have.FilterSubjects) > 0 {
		c.differ("filter_subject", have.FilterSubject, want.FilterSubject, "")
		next.FilterSubject, next.FilterSubjects = want.FilterSubject, nil
	}
	set(c, "max_deliver", &next.MaxDeliver, want.MaxDeliver)
	set(c, "max_ack_pending", &next.MaxAckPending, want.MaxAckPending)
	if have.PriorityPolicy != want.PriorityPolicy || !slices.Equal(have.PriorityGroups, want.PriorityGroups) {
		c.differ("priority_groups", cmp.Or(strings.Join(have.PriorityGroups, " "), "none"), strings.Join(want.PriorityGroups, " "), "")
		next.PriorityPolicy, next.PriorityGroups = want.PriorityPolicy, want.PriorityGroups
	}
	if len(have.BackOff) > 0 {
		c.differ("backoff", fmt.Sprint(have.BackOff), "none", "")
		next.BackOff = nil
	}
	if have.InactiveThreshold != 0 {
		c.differ("inactive_threshold", have.InactiveThreshold.String(), "none", "")
		next.InactiveThreshold = 0
	}
	if have.HeadersOnly {
		c.differ("headers_only", "true", "false", "")
		next.HeadersOnly = false
	}
	if have.MaxRequestExpires != 0 {
		c.differ("max_request_expires", have.MaxRequestExpires.String(), "none", "")
		next.MaxRequestExpires = 0
	}
	set(c, "max_request_max_bytes", &next.MaxRequestMaxBytes, 0)
	if opts.Lease > 0 && c.ofWorker.Stream == StreamWork && want.AckWait != have.AckWait {
		c.differ("ack_wait", have.AckWait.String(), want.AckWait.String(), "")
		next.AckWait = want.AckWait
	}
	if have.MaxWaiting < want.MaxWaiting {
		c.differ("max_waiting", strconv.Itoa(have.MaxWaiting), strconv.Itoa(want.MaxWaiting), kept)
	}
	c.consumer = next
	c.setAction()
}

func applyConsumer(ctx context.Context, js natsjs.JetStream, opts Options, c Change) (Change, error) {
	ctx, cancel := opts.bound(ctx)
	defer cancel()
	spec := c.ofWorker
	stream := spec.StreamName(opts.Map)
	write := func(verb string, f func(context.Context, string, natsjs.ConsumerConfig) (natsjs.Consumer, error)) error {
		_, err := api.Asking(ctx, js, "CONSUMER.CREATE."+stream+"."+c.consumer.Durable, func(ctx context.Context) (natsjs.Consumer, error) {
			return f(ctx, stream, c.consumer)
		})
		return api.Explain(js.Conn(), overlapping(ctx, js, stream, spec, err), "%s %s", verb, c.Name)
	}
	var err error
	if c.Action == ActionCreate {
		if err = write("create", js.CreateConsumer); errors.Is(err, natsjs.ErrConsumerExists) { // another worker was faster
			c, err = planConsumer(ctx, js, opts, spec)
		}
	}
	if err == nil && c.Action == ActionUpdate {
		err = write("update", js.UpdateConsumer)
	}
	return c, err
}

// jsFilterNotUnique is nats-server's code for a consumer of a work queue whose subjects
// overlap with another consumer's.
const jsFilterNotUnique natsjs.ErrorCode = 10100

// overlapping adds to an error about overlapping filters the name of the other consumer.
func overlapping(ctx context.Context, js natsjs.JetStream, stream string, spec ConsumerSpec, err error) error {
	if !api.HasCode(err, jsFilterNotUnique) {
		return err
	}
	s, e := js.Stream(ctx, stream)
	if e != nil {
		return err
	}
	other := ""
	list := s.ListConsumers(ctx)
	for info := range list.Info() {
		filters := info.Config.FilterSubjects
		if len(filters) == 0 {
			filters = []string{info.Config.FilterSubject}
		}
		for _, f := range filters {
			if info.Name != spec.Config.Durable && (f == "" || subject.Overlap(f, spec.Config.FilterSubject)) {
				other = info.Name
			}
		}
	}
	if other == "" {
		return err
	}
	return fmt.Errorf("consumer %s draws from %s already: %w", other, spec.Config.FilterSubject, err)
}

package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/buckets"
	"github.com/aeemesh/aeemesh/jetstream"
)

// Lane has the metrics of the durable lanes. The zero value keeps none.
type Lane struct {
	on                    bool
	commits               metric.Float64Histogram
	sizes                 metric.Int64Histogram
	losses, recoveries    metric.Int64Counter
	deaths, requeued, odd metric.Int64Counter
	retriesMade, redrawn  metric.Int64Counter
	backlog, leased       metric.Int64ObservableGauge
	oldest                metric.Float64ObservableGauge
	fill                  metric.Float64Gauge
	meter                 metric.Meter
}

func newLane(mp metric.MeterProvider) (*Lane, error) {
	tel := &Lane{}
	if mp == nil {
		return tel, nil
	}
	tel.on, tel.meter = true, mp.Meter(Scope)
	m := tel.meter
	var errs []error
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	tel.losses = counter("aee.run.leases.lost", "{run}", "Runs that this worker lost to another worker.")
	tel.recoveries = counter("aee.run.recoveries", "{run}", "Runs claimed from a worker that had not released them.")
	tel.deaths = counter("aee.dead_letters", "{task}", "Tasks that became dead letters, by error code.")
	tel.requeued = counter("aee.run.requeued", "{run}", "Runs whose message was lost and that were requeued.")
	tel.odd = counter("aee.run.unreadable", "{run}", "Records of runs that this worker could not read.")
	tel.retriesMade = counter("aee.task.retries", "{attempt}", "Failed attempts that will be retried.")
	tel.redrawn = counter("aee.task.redeliveries", "{message}", "Messages that were delivered before.")
	var err error
	tel.commits, err = m.Float64Histogram("aee.checkpoint.duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets.Writes()...),
		metric.WithDescription("Writing one checkpoint, encoding included."))
	errs = append(errs, err)
	tel.sizes, err = m.Int64Histogram("aee.checkpoint.size", metric.WithUnit("By"), metric.WithExplicitBucketBoundaries(buckets.Sizes()...),
		metric.WithDescription("Size of one checkpoint."))
	errs = append(errs, err)
	tel.backlog, err = m.Int64ObservableGauge("aee.queue.backlog", metric.WithUnit("{task}"), metric.WithDescription("Durable tasks that were not delivered yet."))
	errs = append(errs, err)
	tel.leased, err = m.Int64ObservableGauge("aee.queue.leased", metric.WithUnit("{task}"), metric.WithDescription("Durable tasks that were delivered and are not acked."))
	errs = append(errs, err)
	tel.oldest, err = m.Float64ObservableGauge("aee.queue.oldest.age", metric.WithUnit("s"), metric.WithDescription("Age of the oldest durable task that was not delivered yet."))
	errs = append(errs, err)
	tel.fill, err = m.Float64Gauge("aee.runs.store.used", metric.WithUnit("1"), metric.WithDescription("Used share of the store of runs, from 0 to 1."))
	errs = append(errs, err)
	return tel, errors.Join(errs...)
}

// Filled records which share of the store of runs is used.
func (tel *Lane) Filled(used float64) {
	if tel.on {
		tel.fill.Record(context.Background(), used)
	}
}

// Watch observes the backlog of an entity's lane until the returned function is called. now
// is the server's time.
func (tel *Lane) Watch(entity string, health func() jetstream.LaneHealth, now func() time.Time) (stop func(), err error) {
	if !tel.on {
		return func() {}, nil
	}
	reg, err := tel.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		h := health()
		for _, p := range h.Parts {
			if p.Priority == "" {
				continue
			}
			attrs := metric.WithAttributes(attribute.String("aee.entity", entity), attribute.String("aee.priority", p.Priority))
			o.ObserveInt64(tel.backlog, int64(p.Pending), attrs)
			o.ObserveInt64(tel.leased, int64(p.Unacked), attrs)
			var age float64
			if !p.Oldest.IsZero() {
				age = max(0, now().Sub(p.Oldest).Seconds())
			}
			o.ObserveFloat64(tel.oldest, age, attrs)
		}
		return nil
	}, tel.backlog, tel.leased, tel.oldest)
	if err != nil {
		return func() {}, err
	}
	return func() { _ = reg.Unregister() }, nil
}

func (tel *Lane) count(c metric.Int64Counter, entity string, n int64, more ...attribute.KeyValue) {
	if tel.on {
		c.Add(context.Background(), n, metric.WithAttributes(append(more, attribute.String("aee.entity", entity))...))
	}
}

// Lost counts a run that another worker owns now.
func (tel *Lane) Lost(entity string) { tel.count(tel.losses, entity, 1) }

// Recovered counts a run that was claimed, or requeued, from a worker that had not released it.
func (tel *Lane) Recovered(entity string) { tel.count(tel.recoveries, entity, 1) }

// Unreadable counts a record that this worker could not read.
func (tel *Lane) Unreadable(entity string) { tel.count(tel.odd, entity, 1) }

// Retried counts a failed attempt that will be retried.
func (tel *Lane) Retried(entity string) { tel.count(tel.retriesMade, entity, 1) }

// Swept counts n runs that had no message and were requeued.
func (tel *Lane) Swept(entity string, n int) { tel.count(tel.requeued, entity, int64(n)) }

// Dead counts a task that became a dead letter.
func (tel *Lane) Dead(entity string, code envelope.Code) {
	tel.count(tel.deaths, entity, 1, attribute.String("error.type", string(code)))
}

// Delivered counts a message that was delivered before.
func (tel *Lane) Delivered(entity string, d *jetstream.Delivery) {
	if tel.on && d.Delivered > 1 {
		tel.count(tel.redrawn, entity, 1)
	}
}

// Checkpoint records the size of a checkpoint and how long it took to write.
func (tel *Lane) Checkpoint(entity string, size int, took time.Duration) {
	if !tel.on {
		return
	}
	attrs := metric.WithAttributes(attribute.String("aee.entity", entity))
	tel.commits.Record(context.Background(), took.Seconds(), attrs)
	tel.sizes.Record(context.Background(), int64(size), attrs)
}

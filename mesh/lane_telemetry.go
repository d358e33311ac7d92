package mesh

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
)

// laneTelemetry are the metrics of the durable lane. The zero value keeps none.
type laneTelemetry struct {
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

func newLaneTelemetry(mp metric.MeterProvider) (*laneTelemetry, error) {
	tel := &laneTelemetry{}
	if mp == nil {
		return tel, nil
	}
	tel.on, tel.meter = true, mp.Meter(scope)
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
	tel.commits, err = m.Float64Histogram("aee.checkpoint.duration", metric.WithUnit("s"), metric.WithDescription("Writing one checkpoint, encoding included."))
	errs = append(errs, err)
	tel.sizes, err = m.Int64Histogram("aee.checkpoint.size", metric.WithUnit("By"), metric.WithDescription("Size of one checkpoint."))
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

func (tel *laneTelemetry) filled(used float64) {
	if tel.on {
		tel.fill.Record(context.Background(), used)
	}
}

// watch observes the backlog of a lane until the returned function is called.
func (tel *laneTelemetry) watch(l *lane) (stop func()) {
	if !tel.on {
		return func() {}
	}
	reg, err := tel.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		h := l.queue.Health()
		for _, p := range h.Parts {
			if p.Priority == "" {
				continue
			}
			attrs := metric.WithAttributes(attribute.String("aee.entity", l.host.Entity), attribute.String("aee.priority", p.Priority))
			o.ObserveInt64(tel.backlog, int64(p.Pending), attrs)
			o.ObserveInt64(tel.leased, int64(p.Unacked), attrs)
			var age float64
			if !p.Oldest.IsZero() {
				age = max(0, l.clock.now().Sub(p.Oldest).Seconds())
			}
			o.ObserveFloat64(tel.oldest, age, attrs)
		}
		return nil
	}, tel.backlog, tel.leased, tel.oldest)
	if err != nil {
		l.host.log.Warn("metrics of the durable lane", "err", err)
		return func() {}
	}
	return func() { _ = reg.Unregister() }
}

func (tel *laneTelemetry) count(c metric.Int64Counter, h *host, n int64, more ...attribute.KeyValue) {
	if tel.on {
		c.Add(context.Background(), n, metric.WithAttributes(append(more, attribute.String("aee.entity", h.Entity))...))
	}
}

func (tel *laneTelemetry) lost(h *host)       { tel.count(tel.losses, h, 1) }
func (tel *laneTelemetry) recovered(h *host)  { tel.count(tel.recoveries, h, 1) }
func (tel *laneTelemetry) unreadable(h *host) { tel.count(tel.odd, h, 1) }
func (tel *laneTelemetry) retried(h *host)    { tel.count(tel.retriesMade, h, 1) }
func (tel *laneTelemetry) swept(h *host, n int) {
	tel.count(tel.requeued, h, int64(n))
}

func (tel *laneTelemetry) dead(h *host, code envelope.Code) {
	tel.count(tel.deaths, h, 1, attribute.String("error.type", string(code)))
}

func (tel *laneTelemetry) delivered(h *host, d *jetstream.Delivery) {
	if tel.on && d.Delivered > 1 {
		tel.count(tel.redrawn, h, 1)
	}
}

func (tel *laneTelemetry) checkpoint(h *host, size int, took time.Duration) {
	if !tel.on {
		return
	}
	attrs := metric.WithAttributes(attribute.String("aee.entity", h.Entity))
	tel.commits.Record(context.Background(), took.Seconds(), attrs)
	tel.sizes.Record(context.Background(), int64(size), attrs)
}

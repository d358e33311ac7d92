package jetstream_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// The benchmarks of the lane keep 64 tasks in flight: a task is submitted when another
// one has ended. Submitter and worker have their own connections; the server runs in this
// process.
const inFlight = 64

func BenchmarkLane(b *testing.B) {
	srv := natstest.Run(b, natsd.Config{JetStream: true})
	js := connect(b, srv)
	apply(b, js, jetstream.Options{})
	q := jetstream.NewQueue(connect(b, srv), subject.Map{})
	worker := jetstream.NewQueue(js, subject.Map{})
	lane, err := worker.Lane("agent.x", jetstream.LaneOptions{Create: true})
	if err != nil {
		b.Fatal(err)
	}
	if err := lane.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{}, b.N)
	var busy, deliveries atomic.Int64
	var running sync.WaitGroup
	running.Go(func() {
		err := lane.Run(ctx, func() int { return inFlight - int(busy.Load()) }, func(d *jetstream.Delivery) {
			busy.Add(1)
			deliveries.Add(1)
			_ = d.Ack()
			busy.Add(-1)
			done <- struct{}{}
		})
		if err != nil {
			b.Error(err)
		}
	})
	work(b, done, func() error {
		_, err := q.Submit(b.Context(), jetstream.Submission{Entity: "agent.x", Data: make([]byte, 625)})
		return err
	})
	cancel()
	running.Wait()
	b.ReportMetric(float64(deliveries.Load())/float64(b.N), "deliveries/op")
}

func BenchmarkRawConsume(b *testing.B) {
	srv := natstest.Run(b, natsd.Config{JetStream: true})
	js := connect(b, srv)
	apply(b, js, jetstream.Options{})
	spec, err := jetstream.WorkConsumer(subject.Map{}, "normal", "agent.x", 0)
	if err != nil {
		b.Fatal(err)
	}
	cons, err := jetstream.EnsureConsumer(b.Context(), js, subject.Map{}, spec, true)
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{}, b.N)
	consuming, err := cons.Consume(func(msg natsjs.Msg) {
		_ = msg.Ack()
		done <- struct{}{}
	}, natsjs.PullMaxMessages(inFlight), natsjs.PullPriorityGroup(spec.Config.PriorityGroups[0]))
	if err != nil {
		b.Fatal(err)
	}
	publisher := connect(b, srv)
	work(b, done, func() error {
		_, err := publisher.Publish(b.Context(), "aee.work.normal.agent.x", make([]byte, 625))
		return err
	})
	consuming.Stop()
	<-consuming.Closed()
}

// work submits b.N tasks and keeps 64 of them in flight.
func work(b *testing.B, done <-chan struct{}, submit func() error) {
	places := make(chan struct{}, inFlight)
	var submitters sync.WaitGroup
	var next atomic.Int64
	b.ResetTimer()
	begun := time.Now()
	for range inFlight {
		submitters.Go(func() {
			for next.Add(1) <= int64(b.N) {
				places <- struct{}{}
				if err := submit(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for range b.N {
		<-done
		<-places
	}
	submitters.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "tasks/s")
}

// BenchmarkLaneRoundTrip sends one task at a time through an idle lane: it is submitted,
// delivered, answered and acknowledged, and the reply is received.
func BenchmarkLaneRoundTrip(b *testing.B) {
	srv := natstest.Run(b, natsd.Config{JetStream: true})
	js := connect(b, srv)
	apply(b, js, jetstream.Options{})
	client := connect(b, srv)
	replies := jetstream.NewReplies(js, subject.Map{})
	lane, err := jetstream.NewQueue(js, subject.Map{}).Lane("agent.x", jetstream.LaneOptions{Create: true})
	if err != nil {
		b.Fatal(err)
	}
	if err := lane.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_ = lane.Run(ctx, func() int { return 8 }, func(d *jetstream.Delivery) {
			id := string(d.Data)
			if _, err := replies.PublishAsync(jetstream.Reply{Entity: "agent.x", TaskID: id, MsgID: id, Data: d.Data}); err != nil {
				b.Error(err)
			}
			_ = d.Ack()
		})
	})
	queue, heard := jetstream.NewQueue(client, subject.Map{}), jetstream.NewReplies(client, subject.Map{})
	i := 0
	for b.Loop() {
		i++
		id := strconv.Itoa(i)
		f, err := heard.Open("agent.x", id)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := queue.Submit(b.Context(), jetstream.Submission{Entity: "agent.x", ID: id, Data: []byte(id)}); err != nil {
			b.Fatal(err)
		}
		for _, err := range f.Messages(b.Context(), jetstream.FollowOptions{Fresh: true}) {
			if err != nil {
				b.Fatal(err)
			}
			break
		}
	}
	cancel()
	running.Wait()
}

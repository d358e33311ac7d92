package jetstream_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
)

// What has fallen due is listed until a worker moves it; what a worker would drop is not.
func TestDue(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	past := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	schedule := func(subj, schedule, target string) {
		t.Helper()
		if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: subj, Data: []byte(subj), Header: nats.Header{
			"Nats-Schedule": {schedule}, "Nats-Schedule-Target": {target}, "Content-Type": {"application/cbor"},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	schedule("aee.schedule.agent.x.forged", "@at "+past, "aee.due.normal.agent.y")
	schedule("aee.schedule.agent.x.again", "@every 1s", "aee.due.normal.agent.x")
	schedule("aee.schedule.agent.x.a=20b", "@at "+past, "aee.due.low.agent.x")
	schedule("aee.schedule.agent.x.y.1", "@at "+past, "aee.due.high.agent.x.y")
	if _, err := js.Publish(ctx, "aee.due.normal.agent.x", []byte("{}")); err != nil { // published directly
		t.Fatal(err)
	}
	list := func(entity string) []jetstream.Scheduled {
		t.Helper()
		all, err := q.Due(ctx, entity)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if all[i].Stored.IsZero() || !all[i].Due.Equal(all[i].Stored) {
				t.Errorf("due %s, stored %s", all[i].Due, all[i].Stored)
			}
			all[i].Stored, all[i].Due = time.Time{}, time.Time{}
		}
		return all
	}
	waitFor(t, "all to be due", func() bool {
		stream, err := js.Stream(brief(t), jetstream.StreamSchedule)
		return err == nil && stream.CachedInfo().State.LastSeq >= 9
	})
	cbor := nats.Header{"Content-Type": {"application/cbor"}}
	x := jetstream.Scheduled{Entity: "agent.x", Priority: "low", ID: "a b", Data: []byte("aee.schedule.agent.x.a=20b"), Header: cbor}
	y := jetstream.Scheduled{Entity: "agent.x.y", Priority: "high", ID: "1", Data: []byte("aee.schedule.agent.x.y.1"), Header: cbor}
	got := list("")
	if len(got) != 2 || got[0].Seq == 0 || got[1].Seq <= got[0].Seq {
		t.Fatalf("got %+v", got)
	}
	if got[0].Entity != "agent.x" {
		got[0], got[1] = got[1], got[0]
	}
	x.Seq, y.Seq = got[0].Seq, got[1].Seq
	if !reflect.DeepEqual(got, []jetstream.Scheduled{x, y}) {
		t.Errorf("got %+v", got)
	}
	if got := list("agent.x"); !reflect.DeepEqual(got, []jetstream.Scheduled{x}) {
		t.Errorf("of agent.x: %+v", got)
	}
	if got := list("agent.y"); len(got) != 0 {
		t.Errorf("of agent.y: %+v", got)
	}
	if _, err := q.Due(ctx, "agent.*"); err == nil {
		t.Error("a pattern is no entity")
	}
	if err := q.MayRemoveDue(ctx); err != nil {
		t.Error(err)
	}
	if err := q.RemoveDue(ctx, x.Seq); err != nil {
		t.Error(err)
	}
	if err := q.RemoveDue(ctx, x.Seq); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("removed again: %v", err)
	}
	if got := list("agent.x"); len(got) != 0 {
		t.Errorf("removed, and there: %+v", got)
	}
}

// A user who may not remove what is due knows it before the reply is stored.
func TestMayRemoveDue(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "some", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"$JS.API.STREAM.MSG.DELETE.AEE_SCHEDULE"}}}},
	}})
	apply(t, connect(t, srv, nats.UserInfo("all", "p")), jetstream.Options{})
	q := jetstream.NewQueue(connect(t, srv, nats.UserInfo("some", "p")), subject.Map{})
	if err := q.MayRemoveDue(testContext(t)); !errors.Is(err, jetstream.ErrDenied) {
		t.Errorf("got %v", err)
	}
	if err := q.MayRemove(testContext(t)); err != nil {
		t.Errorf("of the queue: %v", err)
	}
}

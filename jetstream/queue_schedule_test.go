package jetstream_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// The leader refuses a delayed task while another write on its subject is under way. That write may
// never be stored, as that of a leader that has lost its quorum. So the task counts as stored only
// when the leader says that it has it.
func TestADelayedTaskIsUncertainWhileAnotherWriteOfItIsUnderWay(t *testing.T) {
	t.Parallel()
	nc := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	answer := func(subject string, with *nats.Msg) {
		if _, err := nc.Subscribe(subject, func(msg *nats.Msg) { _ = msg.RespondMsg(with) }); err != nil {
			t.Fatal(err)
		}
	}
	answer("$JS.API.STREAM.INFO.*", &nats.Msg{Data: []byte(`{"config":{"name":"AEE_SCHEDULE"},"state":{"bytes":10}}`)})
	answer("aee.schedule.>", &nats.Msg{Data: []byte(`{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"},"stream":"AEE_SCHEDULE","seq":0}`)})
	answer("$JS.API.DIRECT.GET.>", &nats.Msg{Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}}})
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	done, err := jetstream.NewQueue(js, subject.Map{}).Submit(testContext(t), jetstream.Submission{Entity: "agent.x", ID: "1", Data: []byte("{}"), At: time.Now().Add(time.Hour)})
	if !errors.Is(err, jetstream.ErrUncertain) {
		t.Errorf("%+v, %v", done, err)
	}
}

// A stray on the subject of a delayed task, an answer that a user had the server put there, is not
// taken for the task. If it covers the task, the server has forgotten when the task falls due.
func TestAStrayIsNotTakenForADelayedTask(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		covered bool // the task was stored before the stray came
		lags    int  // how often a replica answers that has nothing
	}{{"alone", false, 0}, {"over the task", true, 0}, {"not seen by a replica", false, 2}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			js := start(t)
			apply(t, js, jetstream.Options{})
			q := jetstream.NewQueue(js, subject.Map{})
			task := jetstream.Submission{Entity: "agent.x", ID: "1", Data: []byte("{}"), At: time.Now().Add(time.Hour)}
			if c.covered {
				submit(t, q, task)
			}
			if c.lags > 0 {
				lagging(t, js, jetstream.StreamSchedule, "aee.schedule.agent.x.1", c.lags)
			}
			stray, err := js.Publish(testContext(t), "aee.schedule.agent.x.1", []byte(`{"stream":"AEE_SCHEDULE","seq":1}`))
			if err != nil {
				t.Fatal(err)
			}
			covers := stray.Sequence
			if done := submit(t, q, task); done.Seq <= covers || done.Duplicate {
				t.Errorf("over message %d: %+v", covers, done)
			}
			last, err := jetstream.LastOn(testContext(t), js, jetstream.StreamSchedule, "aee.schedule.agent.x.1")
			if err != nil || last.Seq <= covers || last.Header.Get("Nats-Schedule") == "" {
				t.Errorf("the last message: %+v, %v", last, err)
			}
			if again := submit(t, q, task); again.Seq != last.Seq || !again.Duplicate {
				t.Errorf("again: %+v", again)
			}
		})
	}
}

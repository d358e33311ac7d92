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

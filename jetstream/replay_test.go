package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// publish sends broadcasts and waits until all of them are stored.
func publish(t *testing.T, js natsjs.JetStream, subjects ...string) {
	t.Helper()
	ctx := testContext(t)
	stored := func() (n uint64) {
		list := js.ListStreams(ctx)
		for info := range list.Info() {
			n += info.State.Msgs
		}
		return n
	}
	before := stored()
	for i, s := range subjects {
		msg := &nats.Msg{Subject: s, Data: fmt.Appendf(nil, "%s %d", s, i), Header: nats.Header{"N": {fmt.Sprint(i)}}}
		if err := js.Conn().PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
		waitFor(t, s+" to be stored", func() bool { return stored() == before+uint64(i)+1 })
	}
}

func collect(t *testing.T, js natsjs.JetStream, opts jetstream.ReplayOptions) (got []string) {
	t.Helper()
	for msg, err := range jetstream.Replay(testContext(t), js, opts) {
		if err != nil {
			t.Fatal(err)
		}
		if msg.Header.Get("N") == "" || msg.Time.IsZero() || msg.Seq == 0 || msg.Stream == "" {
			t.Errorf("incomplete: %+v", msg)
		}
		got = append(got, string(msg.Data))
	}
	return got
}

func TestReplayMergesStreamsByTime(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	if got := collect(t, js, jetstream.ReplayOptions{}); got != nil {
		t.Errorf("an empty mesh replays %q", got)
	}
	publish(t, js, "bus.ops", "human.adam", "bus.mesh.task", "bus.ops", "human.eve", "human.adam")
	all := []string{"bus.ops 0", "human.adam 1", "bus.mesh.task 2", "bus.ops 3", "human.eve 4", "human.adam 5"}
	for name, tt := range map[string]struct {
		subjects []string
		want     []string
	}{
		"everything": {nil, all},
		"wider":      {[]string{">"}, all},
		"one topic":  {[]string{"bus.ops"}, []string{"bus.ops 0", "bus.ops 3"}},
		"overlaps":   {[]string{"bus.ops", "bus.*", "human.adam"}, []string{"bus.ops 0", "human.adam 1", "bus.ops 3", "human.adam 5"}},
		"crosswise":  {[]string{"*.mesh.>"}, []string{"bus.mesh.task 2"}},
		"nobody":     {[]string{"bus.silence"}, nil},
	} {
		if got := collect(t, js, jetstream.ReplayOptions{Subjects: tt.subjects}); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}

	var third time.Time
	for msg := range jetstream.Replay(testContext(t), js, jetstream.ReplayOptions{}) {
		if string(msg.Data) == all[2] {
			third = msg.Time
			break // the sequence may be left early
		}
	}
	if got := collect(t, js, jetstream.ReplayOptions{Since: third}); !slices.Equal(got, all[2:]) {
		t.Errorf("since the third: %q", got)
	}
}

func TestReplayRefusesWhatIsNotStored(t *testing.T) {
	t.Parallel()
	js := start(t)
	replay := func(opts jetstream.ReplayOptions) (err error) {
		for _, err = range jetstream.Replay(testContext(t), js, opts) {
		}
		return err
	}
	if err := replay(jetstream.ReplayOptions{}); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("no streams: %v", err)
	}
	apply(t, js, jetstream.Options{})
	want := "replay agent.x: nothing of it is stored; stored are bus.> and human.>"
	if err := replay(jetstream.ReplayOptions{Subjects: []string{"bus.a", "agent.x"}}); err == nil || err.Error() != want {
		t.Errorf("a live subject: %v", err)
	}
}

func TestReplayFollowsWithoutAGap(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	m := prefix(t, "acme")
	apply(t, js, jetstream.Options{Map: m})
	publish(t, js, "acme.bus.a", "acme.human.b")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []string
	for msg, err := range jetstream.Replay(ctx, js, jetstream.ReplayOptions{Map: m, Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(msg.Data))
		switch len(got) {
		case 2, 4:
			if len(got) == 4 { // the server restarts while the reader reads
				srv = natstest.Restart(t, srv)
				waitFor(t, "the connection", func() bool {
					_, err := js.AccountInfo(brief(t))
					return err == nil
				})
			}
			publish(t, js, "acme.bus.c", "acme.human.d")
		case 6:
			cancel()
		}
	}
	slices.Sort(got[2:4])
	slices.Sort(got[4:])
	want := "acme.bus.a 0,acme.human.b 1,acme.bus.c 0,acme.human.d 1,acme.bus.c 0,acme.human.d 1"
	if strings.Join(got, ",") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ","), want)
	}
}

func TestReplayEndsWithItsContext(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	publish(t, js, "bus.a", "human.b")
	for _, leaveAfter := range []int{1, 2} {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		for _, err := range jetstream.Replay(ctx, js, jetstream.ReplayOptions{Follow: true}) {
			if err != nil {
				t.Error(err)
			}
			if n++; n == leaveAfter {
				cancel()
			}
		}
		cancel()
	}
}

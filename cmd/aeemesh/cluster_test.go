package main

import (
	"context"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// With servers of a cluster dead, plan, apply and doctor say what the streams can still lose,
// and that nothing can be stored.
func TestDoctorSeesADegradedCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster takes some seconds")
	}
	t.Parallel()
	servers := natstest.Cluster(t, 3)
	js, err := natsjs.New(natstest.ConnAll(t, servers))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the cluster places the streams", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := jetstream.Apply(ctx, js, jetstream.Options{Replicas: 3})
		return err == nil
	})
	home := t.TempDir()
	says := func(srv []*natsd.Server, args ...string) string {
		env := map[string]string{"NATS_URL": natstest.URLs(srv), "HOME": home, "USER": "ada", "AEEMESH_TIMEOUT": "2s"}
		var out, words strings.Builder
		run(t.Context(), args, strings.NewReader(""), &out, &words, func(name string) string { return env[name] })
		return out.String() + words.String()
	}
	until(t, "all is well", func() bool {
		return strings.Contains(says(servers, "doctor", "--probe=false"), "against the death of workers, and of 1 of 3 servers") &&
			strings.Contains(says(servers, "plan"), "everything is as it should be")
	})

	got := "" // the last output of doctor
	defer func() {
		if t.Failed() {
			t.Log(got)
		}
	}()
	servers[2].Close()
	left := servers[:2]
	until(t, "doctor sees that one server is dead", func() bool {
		got = says(left, "doctor", "--probe=false")
		return strings.Contains(got, "warn durable") && strings.Contains(got, "n3 is offline") && strings.Contains(got, "nats server cluster peer-remove NAME")
	})
	same := func(left []*natsd.Server, why string) {
		t.Helper()
		for _, args := range [][]string{{"plan"}, {"plan", "--check"}, {"apply", "--yes"}} {
			if got := says(left, args...); !strings.Contains(got, why) || strings.Contains(got, "everything is as it should be") {
				t.Errorf("%s: %s", strings.Join(args, " "), got)
			}
		}
	}
	same(left, "n3 is offline")

	servers[1].Close()
	left = servers[:1]
	until(t, "doctor sees that there is no quorum", func() bool {
		got = says(left, "doctor", "--probe=false")
		return strings.Contains(got, "fail jetstream") && strings.Contains(got, "fail replicas") && strings.Contains(got, "no quorum") && !strings.Contains(got, "0 durable tasks wait")
	})
	same(left, "no quorum")
	until(t, "runs list fails, and its hint is not that JetStream is off", func() bool {
		got = says(left, "runs", "list")
		return strings.Contains(got, "\"aeemesh doctor\" says")
	})
	until(t, "send says that nothing is stored, and not that the streams are missing", func() bool {
		got = says(left, "send", "agent.reviewer", "{}", "--durable", "--detach", "--sign", "none")
		return strings.Contains(got, "hint: Nothing is stored. In a cluster AEE_WORK may be choosing a leader")
	})
}

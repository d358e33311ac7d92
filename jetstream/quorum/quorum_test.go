package quorum

import (
	"encoding/json"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// After the removal of a lost server, a stream has fewer servers than replicas until there is another
// one. Fewer may fail then.
func TestAReplicaWithoutAServerIsMissing(t *testing.T) {
	t.Parallel()
	here := &natsjs.PeerInfo{Name: "n2", Current: true}
	for _, c := range []struct {
		replicas []*natsjs.PeerInfo // beside the leader
		mayLose  int
		trouble  string
	}{
		{[]*natsjs.PeerInfo{here, {Name: "n4", Current: true}}, 1, ""},
		{[]*natsjs.PeerInfo{here, {Name: "n3", Offline: true}}, 0, "n3 is offline"},
		{[]*natsjs.PeerInfo{here}, 0, "1 of 3 replicas have no server"},
	} {
		g := Of(&natsjs.StreamInfo{Config: natsjs.StreamConfig{Replicas: 3}, Cluster: &natsjs.ClusterInfo{Leader: "n1", Replicas: c.replicas}})
		if g.MayLose() != c.mayLose || g.Trouble() != c.trouble || !g.Quorum() {
			t.Errorf("%d may fail, trouble %q; want %d, %q", g.MayLose(), g.Trouble(), c.mayLose, c.trouble)
		}
	}
}

// A server that dies with the leadership of streams, or before others get a new leader, is never
// heard of by the new leader: nats-server reports it as neither current nor, for up to minutes, offline,
// and its silence as 0. Just after an election that is so of healthy servers too.
func TestAReplicaThatTheLeaderHasNeverHeardOfIsMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		info    string // as nats-server 2.15.3 reports it
		mayLose int
		trouble string
	}{
		{`{"config":{"num_replicas":3},"cluster":{"leader":"n3","leader_since":"2026-11-30T10:00:00Z","replicas":[
			{"name":"n1","current":false,"active":0,"lag":65},{"name":"n2","current":true,"active":200000000}]},"ts":"2026-11-30T10:00:06Z"}`,
			0, "n1 was not heard of since n3 leads"},
		{`{"config":{"num_replicas":5},"cluster":{"leader":"n3","leader_since":"2026-11-30T10:00:00Z","replicas":[
			{"name":"n1","current":false,"active":0,"lag":65},{"name":"n2","current":false,"active":0},
			{"name":"n4","current":true,"active":200000000},{"name":"n5","current":true,"active":200000000}]},"ts":"2026-11-30T10:01:00Z"}`,
			0, "n1 was not heard of since n3 leads, n2 was not heard of since n3 leads"},
		{`{"config":{"num_replicas":3},"cluster":{"leader":"n3","leader_since":"2026-11-30T10:00:00Z","replicas":[
			{"name":"n1","current":false,"active":0,"lag":65},{"name":"n2","current":true,"active":200000000}]},"ts":"2026-11-30T10:00:01Z"}`, 1, ""},
		{`{"config":{"num_replicas":3},"cluster":{"leader":"n3","replicas":[
			{"name":"n1","current":true,"active":0},{"name":"n2","current":false,"active":200000000,"lag":3}]},"ts":"2026-11-30T10:00:06Z"}`, 1, ""},
	} {
		var info natsjs.StreamInfo
		if err := json.Unmarshal([]byte(c.info), &info); err != nil {
			t.Fatal(err)
		}
		if g := Of(&info); g.MayLose() != c.mayLose || g.Trouble() != c.trouble || !g.Quorum() {
			t.Errorf("%s:\n%d may fail, trouble %q; want %d, %q", c.info, g.MayLose(), g.Trouble(), c.mayLose, c.trouble)
		}
	}
}

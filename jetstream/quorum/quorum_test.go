package quorum

import (
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

package quorum

import (
	"fmt"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Group is the servers of a cluster that have a replica of a stream.
type Group struct {
	Servers int      `json:"servers"`           // the configured number of replicas
	Leader  string   `json:"leader,omitempty"`  // the server that stores; "": none, and nothing can be stored or read
	Missing []string `json:"missing,omitempty"` // servers that lack messages, and why: "n3 is offline"
}

// A replica that was silent for so long, or lacks so many operations, counts as missing. On a busy
// stream a healthy replica lags behind for moments.
const (
	replicaSilent = 5 * time.Second
	replicaLags   = 1000
)

// Of returns the group of a stream.
func Of(info *natsjs.StreamInfo) Group {
	g := Group{Servers: info.Config.Replicas}
	if info.Cluster == nil {
		return g
	}
	g.Leader = info.Cluster.Leader
	for _, p := range info.Cluster.Replicas {
		switch {
		case p.Offline:
			g.Missing = append(g.Missing, p.Name+" is offline")
		case p.Current:
		case p.Active == 0 && g.Leader != "" && ledFor(info) > replicaSilent: // died before this leader was elected
			g.Missing = append(g.Missing, p.Name+" was not heard of since "+g.Leader+" leads")
		case p.Active > replicaSilent:
			g.Missing = append(g.Missing, fmt.Sprintf("%s was silent for %v", p.Name, p.Active.Round(time.Second)))
		case p.Lag > replicaLags:
			g.Missing = append(g.Missing, fmt.Sprintf("%s is %d operations behind", p.Name, p.Lag))
		}
	}
	if unplaced := g.Servers - 1 - len(info.Cluster.Replicas); unplaced > 0 && g.Leader != "" {
		g.Missing = append(g.Missing, fmt.Sprintf("%d of %d replicas have no server", unplaced, g.Servers))
	}
	return g
}

// ledFor returns for how long the leader has been one, by its own clock. A server that does not say
// when it was elected counts as an old leader.
func ledFor(info *natsjs.StreamInfo) time.Duration {
	var since time.Time
	if info.Cluster.LeaderSince != nil {
		since = *info.Cluster.LeaderSince
	}
	return info.TimeStamp.Sub(since)
}

// Replicated reports whether a cluster keeps the stream on several servers.
func (g Group) Replicated() bool { return g.Servers > 1 }

// Quorum reports whether enough servers are online to store messages.
func (g Group) Quorum() bool { return g.Leader != "" && len(g.Missing) <= (g.Servers-1)/2 }

// MayLose returns how many servers more may fail before nothing can be stored.
func (g Group) MayLose() int { return max(0, (g.Servers-1)/2-len(g.Missing)) }

// Trouble says what is wrong with the group; "" if nothing is.
func (g Group) Trouble() string {
	why := strings.Join(g.Missing, ", ")
	switch {
	case !g.Replicated():
		return ""
	case g.Quorum():
		return why
	case why == "":
		return None
	}
	return None + ": " + why
}

// None begins the trouble of a group that cannot store.
const None = "no quorum, so nothing can be stored"

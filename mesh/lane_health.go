package mesh

import (
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
)

// laneStatus is the state of a worker's durable lane in aee.status.health, heartbeats
// and NATS micro stats.
type laneStatus struct {
	State  string `json:"state"` // see [jetstream.LaneState]
	Reason string `json:"reason,omitempty"`
	// Pending is the number of tasks that were not delivered yet, Unacked the number of
	// delivered tasks that are not acked, both for all workers of the agent. LagMS is how
	// long the oldest undelivered task has waited.
	Pending int   `json:"pending"`
	Unacked int   `json:"unacked"`
	LagMS   int64 `json:"lag_ms"`
	// Waiting and Running count the tasks of this worker only.
	Waiting int64 `json:"waiting"`
	Running int64 `json:"running"`
}

func (l *lane) report() (status any, health, reason string) {
	if !l.cfg.Available() {
		return l.awaited(), "", "" // live tasks are not affected
	}
	s := l.status()
	health, reason = l.judge(s)
	return s, health, reason
}

func (l *lane) status() laneStatus {
	h := l.queue.Health()
	s := laneStatus{State: string(h.State), Reason: h.Reason, Pending: h.Pending, Unacked: h.Unacked, Waiting: l.deliveries.waiting.Load(), Running: l.performing.Load()}
	if !h.Oldest.IsZero() {
		s.LagMS = max(0, l.clock.now().Sub(h.Oldest).Milliseconds())
	}
	if err := l.down.Load(); err != nil {
		s.State, s.Reason = string(jetstream.LaneDeaf), (*err).Error()
	}
	return s
}

// storeTrouble is how long a failure of the store of runs affects the health.
const storeTrouble = 15 * time.Second

// judge derives the agent's health from the lane's status. It is degraded if the worker
// receives no durable tasks, cannot store runs, cannot read a run or uses more than its
// share of the store, or if tasks wait too long. It is unhealthy if the lane has ended.
func (l *lane) judge(s laneStatus) (status, reason string) {
	failing, odd, crowded := l.records.failing.Load(), l.records.unreadableRun.Load(), l.share.Trouble()
	switch {
	case l.down.Load() != nil:
		return "unhealthy", "the durable lane has ended: " + s.Reason
	case s.State == string(jetstream.LaneDeaf), s.State == string(jetstream.LaneDegraded), s.State == string(jetstream.LanePaused):
		return "degraded", "the durable lane is " + s.State + ": " + s.Reason
	case failing != nil && time.Since(failing.at) < storeTrouble:
		return "degraded", "runs cannot be stored: " + failing.err.Error()
	case crowded != nil:
		return "degraded", crowded.Message
	case odd != nil && time.Since(odd.at) < unreadablePause+storeTrouble:
		return "degraded", "this worker cannot read the run of a waiting task: " + odd.err.Error()
	case l.cfg.MaxLag > 0 && s.LagMS > l.cfg.MaxLag.Milliseconds():
		return "degraded", "durable tasks wait for " + (time.Duration(s.LagMS) * time.Millisecond).Round(time.Second).String()
	}
	return "", ""
}

// LaneWaiting is the state, in health and heartbeats, of a lane whose streams do not
// exist yet. It adds to the states of [jetstream.LaneState].
const LaneWaiting jetstream.LaneState = "waiting"

// awaited returns the status of a lane whose streams do not exist yet.
func (l *lane) awaited() laneStatus {
	s := laneStatus{State: string(LaneWaiting), Reason: "its streams do not exist yet"}
	if l.cfg.NotReady != nil {
		if err := l.cfg.NotReady(); err != nil {
			s.Reason = err.Error()
		}
	}
	return s
}

package service

import (
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// The endpoints of an agent's NATS service.
const (
	Task = iota // the live lane
	Ask         // plain text
	Work        // the durable lane
	NumEndpoints
)

// endpointNames are the names of the endpoints, as NATS micro gets them.
var endpointNames = [NumEndpoints]string{"task", "ask", "work"}

// Stats are the stats of an endpoint in the sense of NATS micro.
type Stats struct {
	requests, errors atomic.Int64
	busyFor          atomic.Int64 // nanoseconds from begun to answered
	lastError        atomic.Pointer[string]
}

// Record counts the answer to a task that ran for some time; 0: it did not begin.
func (s *Stats) Record(ran time.Duration, problem *envelope.Error) {
	s.busyFor.Add(int64(ran))
	s.Count(problem)
}

// Count counts one answer. Refusals count, too, so that NATS tools show all errors that
// senders got.
func (s *Stats) Count(problem *envelope.Error) {
	s.requests.Add(1)
	if problem != nil {
		s.Fail(problem)
	}
}

// Fail turns an answer that was counted as a success into an error, because it could not be sent.
func (s *Stats) Fail(problem *envelope.Error) {
	s.errors.Add(1)
	text := string(problem.Code) + ":" + wire.HeaderText(problem.Message)
	s.lastError.Store(&text)
}

// Answers returns how many answers were counted, and how many of them are errors.
func (s *Stats) Answers() (all, errors int64) { return s.requests.Load(), s.errors.Load() }

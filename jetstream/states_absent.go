package jetstream

import (
	"context"
	"encoding/json"
	"runtime"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
)

// Absent reports whether nothing is stored of a run. It is for a worker that is
// handed a new task, and cheap: one request asks for all runs that are asked for
// at about the same time. It is false where the answer is not to be had soon, or
// where any of those others is stored; and where the bucket has replicas, of
// which the one that answers may be behind.
func (s *States) Absent(ctx context.Context, id state.ID) bool {
	if s.check(ctx, id) != nil {
		return false
	}
	done := make(chan bool, 1)
	if s.absences.add(s.sub+stateKey(id), done) {
		runtime.Gosched() // others may be about to ask
		go s.askAbsent()
	}
	select {
	case absent := <-done:
		return absent
	case <-ctx.Done():
		return false
	}
}

const (
	absentBatch   = 256
	absentWait    = 500 * time.Millisecond
	absentMute    = 10 * time.Second // after a question that nobody answered
	absentLook    = time.Minute      // between two looks at the number of replicas
	absentNothing = "No Results"
)

// absences are the questions of [States.Absent] that wait.
type absences struct {
	mu       sync.Mutex
	subjects []string
	waiting  []chan<- bool
	asking   bool
	mute     time.Time // ask nobody until then

	single bool // the bucket has no replicas; of the asking goroutine, like looked
	looked time.Time
}

// add reports whether the caller is to see to it that they are asked.
func (a *absences) add(subject string, done chan<- bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.mute) {
		done <- false
		return false
	}
	a.subjects, a.waiting = append(a.subjects, subject), append(a.waiting, done)
	first := !a.asking
	a.asking = true
	return first
}

// take returns what waits, and ends the asking where nothing does.
func (a *absences) take() (subjects []string, waiting []chan<- bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.subjects), absentBatch)
	if n == 0 {
		a.asking = false
		return nil, nil
	}
	subjects, waiting = a.subjects[:n:n], a.waiting[:n:n]
	a.subjects, a.waiting = a.subjects[n:], a.waiting[n:]
	return subjects, waiting
}

// askAbsent asks until no question waits; what comes in meanwhile is asked
// together.
func (s *States) askAbsent() {
	for {
		subjects, waiting := s.absences.take()
		if len(waiting) == 0 {
			return
		}
		absent, heard := s.alone(), true
		if absent {
			absent, heard = s.allAbsent(subjects)
		}
		if !heard {
			s.absences.mu.Lock()
			s.absences.mute = time.Now().Add(absentMute)
			s.absences.mu.Unlock()
		}
		for _, done := range waiting {
			done <- absent
		}
	}
}

// alone reports whether the bucket has one replica only.
func (s *States) alone() bool {
	a := &s.absences
	if time.Since(a.looked) < absentLook {
		return a.single
	}
	ctx, cancel := context.WithTimeout(context.Background(), absentWait)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.stream)
	a.looked, a.single = time.Now(), err == nil && stream.CachedInfo().Config.Replicas == 1
	return a.single
}

// allAbsent asks for the last messages of some subjects, and reports whether
// there are none of any. Of more answers than one the first is enough.
func (s *States) allAbsent(subjects []string) (absent, heard bool) {
	body, err := json.Marshal(map[string]any{"multi_last": subjects, "batch": 1})
	if err != nil {
		return false, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), absentWait)
	defer cancel()
	answer, err := s.js.Conn().RequestMsgWithContext(ctx, &nats.Msg{Subject: apiPrefix(s.js) + "DIRECT.GET." + s.stream, Data: body})
	if err != nil {
		return false, false
	}
	return answer.Header.Get("Status") == "404" && answer.Header.Get("Description") == absentNothing, true
}

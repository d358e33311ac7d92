package program

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
)

// streamed has the payloads that the program has streamed for a task and the mesh has not sent
// yet. The read loop adds payloads and the task's own goroutine sends them, so the answers to
// other tasks are read even while the server does not store a stream.
type streamed struct {
	mu    sync.Mutex
	queue []json.RawMessage
	size  int // of queue, in bytes

	more    chan struct{} // gets one, if there is room, when queue has grown
	taken   chan struct{} // and when it has shrunk
	left    chan struct{} // closed when the goroutine sends no more
	dropped bool          // the rest of the stream is dropped; the read loop's own
}

func newStreamed() streamed {
	return streamed{more: make(chan struct{}, 1), taken: make(chan struct{}, 1), left: make(chan struct{})}
}

// itemCost is the memory that a payload needs beside its bytes.
const itemCost = 64

// put adds a payload, if the queue is empty or the payload fits into most bytes.
func (s *streamed) put(payload json.RawMessage, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size > 0 && s.size+len(payload)+itemCost > most {
		return false
	}
	s.queue, s.size = append(s.queue, payload), s.size+len(payload)+itemCost
	pause.Wake(s.more)
	return true
}

// take removes the oldest payload; nil if there is none.
func (s *streamed) take() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	first := s.queue[0]
	s.queue[0] = nil
	s.queue, s.size = s.queue[1:], s.size-len(first)-itemCost
	pause.Wake(s.taken)
	return first
}

// queueStream queues a payload for the task's goroutine. If MaxLine bytes wait there, it waits for
// room. If nothing is sent within StreamTimeout, it drops the rest of the task's stream.
func (x *process) queueStream(f *flight, payload json.RawMessage) {
	s := &f.streamed
	if f.over.Load() || s.dropped || s.put(payload, x.p.cfg.MaxLine) {
		return
	}
	timer := time.NewTimer(x.p.cfg.StreamTimeout)
	defer timer.Stop()
	for {
		select {
		case <-s.taken:
			if s.put(payload, x.p.cfg.MaxLine) {
				return
			}
			timer.Reset(x.p.cfg.StreamTimeout)
		case <-s.left:
			return
		case <-timer.C:
			s.dropped = true
			x.p.notes.warn("rest of stream of program dropped: it is not stored in time")
			return
		}
	}
}

// sendStream sends what is queued, until ctx ends.
func (x *process) sendStream(ctx context.Context, f *flight) {
	for ctx.Err() == nil {
		payload := f.streamed.take()
		if payload == nil {
			return
		}
		err := f.emit(payload)
		switch {
		case err == nil:
		case errors.Is(err, &envelope.Error{Code: envelope.CodeCancelled}): // the task has just ended
			x.p.counts.late.Add(1)
		default:
			x.p.notes.warn("stream envelope of program not sent", "err", err)
		}
	}
}

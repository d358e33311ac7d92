package jetstream

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/jetstream/internal/waited"
	"github.com/nats-io/nats.go"
)

// A source is one consumer that a lane draws from. The lane's mu guards all fields but
// the names.
type source struct {
	spec                   ConsumerSpec
	index, weight          int // weight 0: delayed tasks
	stream, consumer, next string

	// There is at most one request under way. If the source is believed to have tasks
	// (hot), the request is for as many as there is room for, and ends at once; otherwise
	// it is for one task, and waits.
	asked int       // messages of the request that have not arrived; 0: no request
	pull  uint64    // the number of the request
	waits bool      // the request waits for a task
	heard time.Time // the last answer to the request, or when it was sent
	late  bool      // the last request was abandoned or outlasted a silence: the lease on a message that it delivers may be over
	hot   bool      // there are probably more tasks
	want  int       // places kept for the next request
	turn  int       // credit in the weighted round robin

	// See lane_sleep.go.
	asleep, sleepSoon bool
	busy              time.Time // when the last task came, or the source woke
	subscribedAt      time.Time // since when a source that is about to sleep is subscribed to; zero: it is not yet
	emptyAt           time.Time // when the last poll was sent that found no messages; zero: it found some

	ready    bool // the consumer exists, as far as is known
	bounded  bool // the consumer has a max_ack_pending
	batch    int  // the consumer's max_request_batch; 0: it has none
	lease    time.Duration
	made     time.Time // when the consumer was created
	state    LaneState
	why      error // the cause of the state
	warning  error // a problem that does not stop the source
	since    time.Time
	unproven bool      // the consumer's existence does not prove that it serves requests
	tries    int       // failed attempts in a row to recover
	mendAt   time.Time // when to try again
	unheard  time.Time // when the first request found no server since the last answer; zero: none did

	pending, unacked, redelivered int
	floor                         uint64    // all messages up to this sequence of the stream are acknowledged
	server                        time.Time // the time of these numbers, by the server's clock
	lag                           waited.Looks
	oldest                        time.Time
	looked, learnt                time.Time // when the numbers were last requested, and received

	fit   time.Time            // when the last look began that found the consumer as it should be
	empty map[uint64]time.Time // when messages came first that seem to have lost their bodies, by sequence

	ahead aheadWatch // see lane_ahead.go
}

// pollExpires ends a waiting request; the lane then sends another one.
const pollExpires = 30 * time.Second

// expires returns how long a request waits. That of a worker with messages ends before the
// lease on one of them does, should the worker stand still: the worker renews them every
// third of a lease, so two thirds are left then.
func (s *source) expires(busy bool) time.Duration {
	if busy && s.lease > 0 {
		return min(pollExpires, s.lease/2)
	}
	return pollExpires
}

// patience is the silence after which a source is deaf.
func (o LaneOptions) patience() time.Duration { return o.Heartbeat * 5 / 2 }

// become sets the state, and since when it holds.
func (s *source) become(state LaneState, why error) {
	if s.state != state {
		s.state, s.since = state, time.Now()
	}
	s.why = why
}

// delivered records that a message arrived, and how many more there are.
// It reports whether the lease on the message may be over already.
func (s *source) delivered(pending uint64, patience time.Duration) (late bool) {
	if s.state == LanePaused {
		s.become(LaneWorking, nil)
	}
	s.alive(patience)
	s.asked = max(s.asked-1, 0)
	s.wake()
	s.busy, s.hot = s.heard, pending > 0
	return s.late
}

// alive records that the server serves requests, and whether it, the connection or this
// process stood still before that.
func (s *source) alive(patience time.Duration) {
	now := time.Now()
	s.late = s.late || now.Sub(s.heard) > patience
	s.heard = now
	if s.ready && s.state != LanePaused {
		s.tries, s.unproven, s.unheard = 0, false, time.Time{}
		s.serves()
	}
}

// serves records that the server serves requests: tasks come, unless the consumer is ahead of
// its stream.
func (s *source) serves() {
	if s.ahead.why != nil {
		s.become(LaneDeaf, s.ahead.why)
	} else {
		s.become(LaneWorking, nil)
	}
}

// trouble ends the request under way and leaves recovery to the watcher. With doubt, the
// source counts as working again only after an answer to a request; without it, the
// existence of the consumer is enough.
func (s *source) trouble(why error, doubt bool) {
	s.retry(doubt)
	s.become(LaneDeaf, why)
}

// retry ends the request under way and leaves recovery to the watcher; see [source.trouble].
func (s *source) retry(doubt bool) {
	s.asked, s.want, s.ready, s.unproven, s.late = 0, 0, false, doubt, true
	s.mendAt = time.Now().Add(backoff(s.tries))
	s.tries++
}

// unanswered records that no server took a request. That is a trouble if it lasts: where a
// consumer's leader is, a cluster's servers know only a moment after the consumer was made or
// moved.
func (s *source) unanswered(patience time.Duration) {
	now := time.Now()
	if s.unheard.IsZero() {
		s.unheard = now
	}
	if now.Sub(s.unheard) < patience {
		s.retry(s.unproven)
	} else {
		s.trouble(errNoResponders, true)
	}
}

func backoff(tries int) time.Duration {
	const shortest, longest = 25 * time.Millisecond, 5 * time.Second
	if tries == 0 {
		return 0
	}
	return min(shortest<<min(tries-1, 10), longest)
}

// ask sends a request for n messages, which waits for as long as wait; 0: it does not.
func (r *laneRun) ask(s *source, n int, wait time.Duration) {
	if s.batch > 0 {
		n = min(n, s.batch)
	}
	waits := wait > 0
	body := make([]byte, 0, 128)
	body = append(append(append(body, `{"group":"`...), drawGroup...), `","batch":`...)
	body = strconv.AppendInt(body, int64(n), 10)
	switch {
	case waits:
		body = strconv.AppendInt(append(body, `,"expires":`...), int64(wait), 10)
		body = strconv.AppendInt(append(body, `,"idle_heartbeat":`...), int64(min(r.opts.Heartbeat, wait/2)), 10)
	case s.bounded: // at max_ack_pending the server would never answer it
		body = strconv.AppendInt(append(body, `,"no_wait":true,"expires":`...), int64(r.opts.Heartbeat), 10)
	default:
		body = append(body, `,"no_wait":true`...)
	}
	s.pull++
	s.asked, s.waits, s.heard, s.late = n, waits, time.Now(), false
	reply := r.inbox + "." + strconv.Itoa(s.index) + "-" + strconv.FormatUint(s.pull, 10)
	if err := r.nc.PublishRequest(s.next, reply, append(body, '}')); err != nil {
		s.trouble(fmt.Errorf("ask for tasks: %w", err), false)
		pause.Wake(r.mend)
	}
}

// errNoResponders: no server handles requests. The consumer or its stream is gone, or has
// no leader, or JetStream is off.
var errNoResponders = fmt.Errorf("no server answers requests for tasks: %w", nats.ErrNoResponders)

// status handles the server's status messages about a request.
func (r *laneRun) status(msg *nats.Msg) {
	token := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
	index, pull, _ := strings.Cut(token, "-")
	i, err := strconv.Atoi(index)
	if err != nil || i < 0 || i >= len(r.sources) {
		return
	}
	s := r.sources[i]
	code, words := msg.Header.Get("Status"), msg.Header.Get("Description")
	r.mu.Lock()
	defer r.mu.Unlock()
	if code == "100" { // a heartbeat, perhaps of an older request that was given up too early
		s.alive(r.opts.patience())
		return
	}
	if pull != strconv.FormatUint(s.pull, 10) || s.asked == 0 {
		return // about a request that has ended
	}
	switch code {
	case "404", "408": // no messages; the request expired
		s.alive(r.opts.patience())
		s.hot = false
		s.asked = 0
	case "503":
		s.unanswered(r.opts.patience())
	default:
		gone := words == "Consumer Deleted" || words == "Leadership Change" || words == "Server Shutdown"
		s.trouble(fmt.Errorf("the server ended a request for tasks: %s %s", code, words), !gone)
		if words == "Consumer Deleted" {
			s.mendAt = time.Now().Add(deletedPause)
		}
	}
	if !s.ready {
		pause.Wake(r.mend)
	}
	r.Wake()
}

// deletedPause is how long a lane waits before it recreates a deleted consumer. The server
// announces the deletion before it removes the consumer's files, and would also remove the files
// of a new consumer with that name. Until then it may not answer requests about the consumer
// either.
const deletedPause = 250 * time.Millisecond

// errSilent is the cause of a silent source if no other cause is known.
var errSilent = errors.New("the server does not answer requests for tasks")

// listen finds requests that the server no longer answers.
func (r *laneRun) listen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.nc.IsConnected() {
		return
	}
	now := time.Now()
	for _, s := range r.sources {
		if s.asked > 0 && now.Sub(s.heard) > r.opts.patience() {
			why := errSilent
			if d, denied := denial.Why(r.nc, func(d denial.Denial) bool { return d.Is(denial.Publish, s.next) }); denied {
				why = fmt.Errorf("%w: %w", ErrDenied, d.Err)
			}
			s.trouble(why, true)
			pause.Wake(r.mend)
		}
	}
}

// reconnected resets all sources after a disconnect (back false) and a reconnect: the
// server has forgotten the requests, and the state of the consumers may have changed.
func (r *laneRun) reconnected(back bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sources {
		if s.asleep { // the notifier reports a disconnect
			continue
		}
		s.asked, s.want, s.ready, s.mendAt = 0, 0, false, time.Time{}
		s.unheard = time.Time{}
		if back {
			s.tries = 0
		} else {
			s.become(LaneDeaf, nats.ErrDisconnected)
		}
	}
	pause.Wake(r.mend)
}

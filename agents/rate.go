package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope/pause"
)

// Counters are shared counters: those of package jetstream/counter count for a whole mesh.
// Without them each process counts for itself.
type Counters interface {
	// Add adds n, which may be negative, to the counter that is identified by
	// an owner, a kind and ids, and returns the new total. If it is unknown whether
	// n was added, the error wraps [state.ErrUncertain].
	Add(ctx context.Context, n int64, owner, kind string, ids ...string) (total int64, err error)
}

// ErrNoCounters is the error of [Counters] whose mesh stores no counters; each
// process then counts for itself.
var ErrNoCounters = errors.New("there are no counters for the whole mesh")

// localCounters are the counters of one process. The counter of a minute's rate
// is not used again after the minute.
type localCounters struct {
	mu     sync.Mutex
	totals map[string]int64
}

func (c *localCounters) Add(ctx context.Context, n int64, owner, kind string, ids ...string) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	key := owner + "\x00" + kind
	for _, id := range ids {
		key += "\x00" + id
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.totals == nil || len(c.totals) > maxLocalCounters {
		c.totals = make(map[string]int64)
	}
	c.totals[key] += n
	return c.totals[key], nil
}

// maxLocalCounters bounds the number of counters of a process; when it is
// exceeded, all are reset.
const maxLocalCounters = 1 << 16

const (
	countCalls  = "calls"  // kinds of counters: calls and tokens of a tool,
	countTokens = "tokens" // each by agent, tool and minute
	rateWindow  = time.Minute
)

// toolRate is the [tool.Limiter] of one tool of one agent, shared by all
// processes with the same counters. It counts per minute, and approximates a
// sliding window: the count of the previous minute is weighted by the part of
// that minute which lies in the last 60 seconds.
type toolRate struct {
	counters Counters
	local    localCounters // used while counters fail
	entity   string
	tool     string
	limits   map[string]int64 // by kind
	log      *slog.Logger
	now      func() time.Time

	mu     sync.Mutex
	minute int64            // the minute for which before was read
	before map[string]int64 // counts of the minute before that, by kind; not changed any more
	alone  bool             // before was read from local while counters failed
}

// newRate returns nil if the document sets no limit.
func newRate(c Counters, entity string, e *aaif.Tool, log *slog.Logger) *toolRate {
	r := &toolRate{counters: c, entity: entity, tool: e.Name, limits: make(map[string]int64), log: log, now: time.Now}
	if l := e.RateLimit; l != nil {
		for kind, n := range map[string]aaif.Number{countCalls: l.RequestsPerMinute, countTokens: l.TokensPerMinute} {
			if n.IsSet() {
				r.limits[kind] = max(1, n.Int64())
			}
		}
	}
	if len(r.limits) == 0 {
		return nil
	}
	return r
}

// Take implements [tool.Limiter].
func (r *toolRate) Take(ctx context.Context, tokens int) (back func(context.Context), err error) {
	for {
		back, wait, limit, err := r.try(ctx, map[string]int64{countCalls: 1, countTokens: int64(tokens)})
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, err
		}
		if wait == 0 {
			return back, nil
		}
		if end, ok := ctx.Deadline(); ok && r.now().Add(wait).After(end) {
			return nil, &tool.Error{Kind: tool.ErrBusy, Tool: r.tool, Message: fmt.Sprintf("its rate limit of %s a minute is used up; there is room again in %v", limit, wait.Round(time.Second))}
		}
		if !pause.For(ctx, wait) {
			return nil, ctx.Err()
		}
	}
}

// Spent implements [tool.Limiter].
func (r *toolRate) Spent(ctx context.Context, tokens int) {
	if r.limits[countTokens] == 0 {
		return
	}
	minute, _ := r.at()
	if _, _, err := r.add(ctx, int64(tokens), countTokens, minute); err != nil {
		r.log.Warn("tokens of a tool were not counted", "tool", r.tool, "err", err)
	}
}

// add counts in the shared counters, or in this process's while those fail. It returns those in
// which it counted.
func (r *toolRate) add(ctx context.Context, n int64, kind, minute string) (int64, Counters, error) {
	total, err := r.counters.Add(ctx, n, r.entity, kind, r.tool, minute)
	if err == nil || ctx.Err() != nil {
		return total, r.counters, err
	}
	if !errors.Is(err, ErrNoCounters) {
		r.log.Warn("a rate limit is counted by this worker alone for now", "tool", r.tool, "err", err)
	}
	total, err = r.local.Add(ctx, n, r.entity, kind, r.tool, minute)
	return total, &r.local, err
}

// at returns the number of the current minute, and which fraction of it has
// passed.
func (r *toolRate) at() (minute string, passed float64) {
	now := r.now()
	return strconv.FormatInt(now.Unix()/60, 10), float64(now.UnixNano()%int64(rateWindow)) / float64(rateWindow)
}

// try counts a call. If that exceeds a limit, it takes the count back and
// returns how long to wait; otherwise back does, in the minute in which it was counted.
func (r *toolRate) try(ctx context.Context, cost map[string]int64) (back func(context.Context), wait time.Duration, limit string, err error) {
	minute, passed := r.at()
	type count struct {
		in Counters
		n  int64
	}
	counted := make(map[string]count)
	back = func(ctx context.Context) {
		for kind, c := range counted {
			if _, err := c.in.Add(ctx, -c.n, r.entity, kind, r.tool, minute); err != nil {
				r.log.Warn("a call that was not made stays counted for a minute", "tool", r.tool, "err", err)
			}
		}
	}
	defer func() {
		if wait > 0 || err != nil {
			back(context.WithoutCancel(ctx))
		}
	}()
	for _, kind := range []string{countCalls, countTokens} {
		most, limited := r.limits[kind]
		if !limited {
			continue
		}
		n := min(cost[kind], most) // a call that is larger than the limit counts as the whole limit
		total, in, err := r.add(ctx, n, kind, minute)
		if err != nil {
			return back, 0, "", err
		}
		counted[kind] = count{in, n}
		before, err := r.look(ctx, minute, in != &r.local)
		if err != nil {
			return back, 0, "", err
		}
		if w := room(kind, total, before[kind], most, passed); w > wait {
			wait, limit = w, fmt.Sprint(most, " ", kind)
		}
	}
	return back, wait, limit, nil
}

// room returns how long to wait until the count of this minute, plus the
// weighted count of the previous minute, is within the limit; 0 if it is.
func room(kind string, total, before, most int64, passed float64) time.Duration {
	if float64(total)+float64(before)*(1-passed) <= float64(most) {
		return 0
	}
	if total <= most && before > 0 { // wait until enough of the previous minute has left the window
		until := 1 - float64(most-total)/float64(before)
		return max(time.Duration((until-passed)*float64(rateWindow)), 10*time.Millisecond)
	}
	// This minute is full. Wait until so much of the next minute has passed
	// that this minute's count, without this call, leaves room for it.
	next := 0.0
	if others := total - 1; others > 0 && kind == countCalls {
		next = max(0, 1-float64(most-1)/float64(others))
	}
	return max(time.Duration((1-passed+next)*float64(rateWindow)), 10*time.Millisecond)
}

// look returns the counts of the previous minute. It reads them once a minute, and once more when
// the shared counters answer again.
func (r *toolRate) look(ctx context.Context, minute string, shared bool) (map[string]int64, error) {
	now, err := strconv.ParseInt(minute, 10, 64)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.minute == now && !(r.alone && shared) {
		return r.before, nil
	}
	before, alone := make(map[string]int64), false
	for kind := range r.limits {
		var in Counters
		if before[kind], in, err = r.add(ctx, 0, kind, strconv.FormatInt(now-1, 10)); err != nil {
			return nil, err
		}
		alone = alone || in == &r.local
	}
	if now >= r.minute { // a late call belongs to an earlier minute
		r.minute, r.before, r.alone = now, before, alone
	}
	return before, nil
}

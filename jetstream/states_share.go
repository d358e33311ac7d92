package jetstream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/state"
)

// An entity may not fill the store of runs for all others. Beyond these shares of a
// store's MaxBytes its workers begin no new runs: the store is fuller than CrowdedFrom,
// and more than FairShare of it is held by the entity's own.
const (
	CrowdedFrom = 0.5
	FairShare   = 0.25
)

// A Share says how full a store of runs is.
type Share struct {
	Store    string  // the stream
	MaxBytes int64   // 0 or less: no limit, and no shares
	Used     float64 // of MaxBytes
	Own      float64 // what the entity holds of MaxBytes; not looked up where Used is not over CrowdedFrom
}

// Crowded reports whether the entity takes more than its share.
func (s Share) Crowded() bool { return s.Used > CrowdedFrom && s.Own > FairShare }

// Shares tells how full the stores of records and of objects are, and about how much of
// them an entity holds: its revisions but for those that a sweep would take away. It needs
// no other permissions than those of the entity's worker, so it reads the names of the
// entity's own keys and some of the records, more likely those with many revisions. What the entity
// is to store soon, in bytes, counts as if it were stored.
func (s *States) Shares(ctx context.Context, entity string, soon int64) ([]Share, error) {
	return s.shares(ctx, entity, soon, SweepOptions{})
}

func (s *States) shares(ctx context.Context, entity string, soon int64, opts SweepOptions) ([]Share, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	opts.defaults()
	var all []Share
	for _, store := range []struct {
		stream, filter string
		keep           time.Duration // after the end of a run
		key            func(subj string) string
		size           func(Message) int
	}{
		{s.stream, s.sub + entityKey(entity) + ".*", opts.Keep, func(subj string) string { return strings.TrimPrefix(subj, s.sub) }, recordSize},
		{s.objectStream(), DocumentSubjects(s.m, entity), opts.Orphans, s.keyOfChunk, chunkSizeOf},
	} {
		now, err := s.usage(ctx, store.stream)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		now.bytes += uint64(soon)
		share := Share{Store: store.stream, MaxBytes: now.limit, Used: now.share()}
		if share.Used > CrowdedFrom {
			subjects, err := streamSubjects(ctx, s.js, store.stream, store.filter)
			if err != nil {
				return nil, err
			}
			messages := map[string]int{} // by key
			for subj, n := range subjects {
				messages[store.key(subj)] += n
			}
			bytes, err := s.holds(ctx, messages, func(m Message) int {
				if s.sweepable(m) && now.now.Sub(m.Time) > store.keep {
					return 0
				}
				return store.size(m)
			})
			if err != nil {
				return nil, err
			}
			share.Own = (bytes + float64(soon)) / float64(now.limit)
		}
		all = append(all, share)
	}
	return all, nil
}

// sweepable reports whether a sweep takes the run of a record away when it is old enough.
func (s *States) sweepable(m Message) bool {
	r := stateMessage{Message: m}
	return deleted(m.Header) || state.Terminal(r.status()) && m.Header.Get(HeaderWork) != ""
}

// sharesRead is how many records are read to learn about the entity's share.
const sharesRead = 64

// holds is about how many bytes there are in the messages of some keys, where size is that
// of each by the key's newest record. It reads a sample if there are many.
func (s *States) holds(ctx context.Context, messages map[string]int, size func(Message) int) (float64, error) {
	keys := slices.Sorted(maps.Keys(messages))
	weights := make([]float64, len(keys))
	for i, key := range keys {
		weights[i] = float64(messages[key])
	}
	if len(keys) > sharesRead {
		keys, weights = sample(keys, weights)
	}
	bytes := make([]float64, len(keys))
	errs := make([]error, len(keys))
	var reads sync.WaitGroup
	for i, key := range keys {
		reads.Go(func() {
			m, err := newest(ctx, s.js, s.stream, s.sub+key)
			if err == nil {
				bytes[i] = weights[i] * float64(size(m))
			} else if !errors.Is(err, natsjs.ErrMsgNotFound) {
				errs[i] = explain(s.js.Conn(), err, "look at %s", s.stream)
			}
		})
	}
	reads.Wait()
	sum := 0.0
	for _, b := range bytes {
		sum += b
	}
	return sum, errors.Join(errs...)
}

// sample draws keys by their weight. Each stands for as much as any other.
func sample(keys []string, weights []float64) ([]string, []float64) {
	ends, all := make([]float64, len(keys)), 0.0
	for i, w := range weights {
		all += w
		ends[i] = all
	}
	drawn, each := make([]string, sharesRead), make([]float64, sharesRead)
	for i := range drawn {
		at, _ := slices.BinarySearchFunc(ends, rand.Float64()*all, cmp.Compare[float64])
		drawn[i], each[i] = keys[min(at, len(keys)-1)], all/sharesRead
	}
	return drawn, each
}

// recordSize is what a message takes in the store, headers and all.
func recordSize(m Message) int { return len(m.Data) + 512 }

// chunkSizeOf is the size of the chunks of a record's document.
func chunkSizeOf(m Message) int {
	o, ok := objectOf(m.Header)
	if !ok || o.Size <= 0 {
		return chunkSize
	}
	return int(o.Size / ((o.Size + chunkSize - 1) / chunkSize))
}

// keyOfChunk is the key of the run whose document a chunk belongs to.
func (s *States) keyOfChunk(subj string) string {
	name, _ := s.objectAt(subj)
	key, _, _ := strings.Cut(strings.TrimPrefix(name, s.object), "/")
	return key
}

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

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/state"
)

// An entity must not fill the store of runs at the expense of all others. Its workers
// begin no new runs while more than CrowdedFrom of the store's MaxBytes is used and the
// entity has more than FairShare of MaxBytes, or more than what is free. So entities that
// each have less than FairShare do not fill the store together: n of them that have as much
// as they may leave 1/(n+1) of it. An entity that has little may always use as much as is
// free, so it begins runs while others wait.
const (
	CrowdedFrom = 0.5
	FairShare   = 0.25
)

// A Share says how full a store of runs is.
type Share struct {
	Store    string  // the stream
	MaxBytes int64   // 0 or less: no limit, and no shares
	Used     float64 // fraction of MaxBytes that is used
	Own      float64 // fraction of MaxBytes that the entity uses; only computed if Used is over CrowdedFrom
}

// Fair is the fraction of MaxBytes that the entity may use while the store is crowded.
func (s Share) Fair() float64 { return max(0, min(FairShare, 1-s.Used)) }

// Crowded reports whether the entity uses more than its share of a crowded store.
func (s Share) Crowded() bool { return s.Used > CrowdedFrom && s.Own > s.Fair() }

// Shares returns how full the stores of records and of objects are, and estimates how
// much of them an entity uses, without the revisions that a sweep would remove. soon is
// the number of bytes that the entity is about to store; they count as stored. Shares
// needs only the permissions of the entity's worker: it reads the names of the entity's
// own keys and a sample of the records, more likely those with many revisions.
func (s *States) Shares(ctx context.Context, entity string, soon int64) ([]Share, error) {
	return s.shares(ctx, entity, soon, SweepOptions{})
}

func (s *States) shares(ctx context.Context, entity string, soon int64, opts SweepOptions) ([]Share, error) {
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	opts.defaults()
	var all []Share
	recordOf := func(chunk string) string {
		name, _ := s.objects.NameAt(chunk)
		key, _, _ := strings.Cut(strings.TrimPrefix(name, s.object), "/")
		return s.sub + key
	}
	for _, store := range []struct {
		stream, filter string
		keep           time.Duration            // after the run ended
		holder         func(subj string) string // the subject of the record or reply that the message belongs to
		size           func(Message) int
	}{
		{s.stream, s.pattern(entityKey(entity) + ".*"), opts.Keep, func(subj string) string { return subj }, recordSize},
		{s.objects.Stream(), DocumentSubjects(s.m, entity), opts.Orphans, recordOf, s.chunkSizeOf},
	} {
		now, err := usageOf(ctx, s.js, store.stream)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		now.bytes += uint64(soon)
		share := Share{Store: store.stream, MaxBytes: now.limit, Used: now.share()}
		if share.Used > CrowdedFrom {
			subjects, err := api.Subjects(ctx, s.js, store.stream, store.filter)
			if err != nil {
				return nil, err
			}
			messages := map[string]int{}
			for subj, n := range subjects {
				messages[store.holder(subj)] += n
			}
			bytes, err := s.holds(ctx, messages, func(m Message) int {
				if sweepable(m) && now.now.Sub(m.Time) > store.keep {
					return 0
				}
				return store.size(m)
			})
			if err != nil {
				return nil, err
			}
			// The estimate is too high where the newest message of a record is its largest.
			share.Own = min(share.Used, (bytes+float64(soon))/float64(now.limit))
		}
		all = append(all, share)
	}
	return all, nil
}

// sweepable reports whether a sweep removes the run of a record once it is old enough.
func sweepable(m Message) bool {
	r := stateMessage{Message: m}
	return api.Deleted(m.Header) || state.Terminal(r.status()) && m.Header.Get(HeaderWork) != ""
}

// sharesRead is how many records are read to estimate the entity's share.
const sharesRead = 64

// holds estimates the bytes of the messages of some subjects: the number of messages of a
// subject times size of its newest one. It reads a sample if there are many subjects.
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
			m, err := api.Newest(ctx, s.js, s.stream, key)
			if err == nil {
				bytes[i] = weights[i] * float64(size(m))
			} else if !errors.Is(err, natsjs.ErrMsgNotFound) {
				errs[i] = api.Explain(s.js.Conn(), err, "look at %s", s.stream)
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

// sample draws keys at random by their weight. All drawn keys get the same weight.
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

// recordSize estimates what a message takes in the store, headers included.
func recordSize(m Message) int { return len(m.Data) + 512 }

// chunkSizeOf is the average size of the chunks of a record's document.
func (s *States) chunkSizeOf(m Message) int {
	size := int64(s.objects.ChunkSize())
	o, ok := objectOf(m.Header)
	if !ok || o.Size <= 0 {
		return int(size)
	}
	return int(o.Size / ((o.Size + size - 1) / size))
}

package jetstream

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"

	"github.com/aeemesh/aeemesh/state"
)

// CorrDigest is how [HeaderCorr] names a corr, which may be any text: the first 8 bytes of
// its SHA-256, in hex.
func CorrDigest(corr string) string {
	sum := sha256.Sum256([]byte(corr))
	return hex.EncodeToString(sum[:8])
}

// Documents yields the runs of all entities whose last document was stored at a time or later, the
// last one first. With a corr it leaves out the runs whose headers say that their task has another
// corr. It yields runs without that header, which earlier releases did not write. So the caller
// must check the task, too.
//
// It reads the documents that it yields, and only the headers of the others: of those stored since
// the time, if they are few, or of all. For a user who may create no consumer it reads documents
// instead of headers; for one who may only read single subjects, it reads all runs.
func (s *States) Documents(ctx context.Context, since time.Time, corr string) iter.Seq2[state.Record, error] {
	return func(yield func(state.Record, error) bool) {
		documents := func(r state.Record, err error) bool {
			if err == nil && (r.End != nil || r.Time.Before(since)) {
				return true
			}
			return yield(r, err)
		}
		keys, err := []string(nil), ErrDenied
		if !s.fenced.Load() {
			keys, err = s.documentsOf(ctx, since, corr)
		}
		switch {
		case errors.Is(err, ErrDenied):
			for r, err := range s.readByName(ctx, "", false) {
				if !documents(r, err) {
					return
				}
			}
		case err != nil:
			yield(state.Record{}, fmt.Errorf("list runs: %w", err))
		default:
			l := listing{s, func(aaif.RunStatus) bool { return true }, documents}
			l.read(ctx, keys)
		}
	}
}

// documentsOf returns the keys of the runs with a document that was stored at a time or
// later and whose headers do not name another corr, the last one first.
func (s *States) documentsOf(ctx context.Context, since time.Time, corr string) ([]string, error) {
	digest := CorrDigest(corr)
	choose := func(m stateMessage) bool {
		of := m.Header.Get(HeaderCorr)
		return !m.Time.Before(since) && (corr == "" || of == "" || of == digest || !m.Genuine())
	}
	few, err := s.fewSince(ctx, since)
	if err != nil {
		return nil, err
	}
	if !few {
		return s.chosen(ctx, s.documents(""), choose)
	}
	last := map[string]uint64{}
	for m, err := range api.ScanSince(ctx, s.js, s.stream, s.documents(""), 1, since) {
		if err != nil {
			return nil, err
		}
		if choose(stateMessage{Message: m}) {
			key, _ := s.keyOf(m.Subject)
			last[key] = m.Seq
		}
	}
	return lastFirst(last), nil
}

// fewSince reports whether the messages that were stored at a time or later are fewer than
// a quarter of the subjects. Each of them costs as much as a few headers of others, because
// it is read with its body, and a run has several.
func (s *States) fewSince(ctx context.Context, since time.Time) (bool, error) {
	if since.IsZero() {
		return false, nil
	}
	info, err := api.InfoOf(ctx, s.js, s.stream)
	if err != nil {
		return false, err
	}
	first, err := api.Direct(ctx, s.js, s.stream, map[string]any{"start_time": since.UTC(), "next_by_subj": ">", "batch": 1})
	if err != nil || len(first.Messages) == 0 {
		return err == nil, err
	}
	return (info.State.LastSeq-min(info.State.LastSeq, first.Messages[0].Seq))*4 < info.State.NumSubjects, nil
}

// lastFirst returns keys by the sequence of their last message, the last one first.
func lastFirst(last map[string]uint64) []string {
	keys := slices.Collect(maps.Keys(last))
	sorted.By(keys, func(a, b string) int { return cmp.Compare(last[b], last[a]) })
	return keys
}

package state

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// Mem is a [Store] in memory, for tests and for runs that may be lost with the process.
// It never returns ErrUncertain. The zero Mem is empty and ready to use.
type Mem struct {
	mu   sync.Mutex
	last uint64 // revision
	runs map[ID][]Record
}

// Put stores a checkpoint, see [Store].
func (m *Mem) Put(ctx context.Context, id ID, prev uint64, data []byte) (uint64, error) {
	if err := m.begin(ctx, "put", id.Validate()); err != nil {
		return 0, err
	}
	if len(data) == 0 {
		return 0, fmt.Errorf("put run %s: it is empty", clip.Text(id.Run, 80))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	history := m.runs[id]
	if newest(history).Revision != prev {
		return 0, fmt.Errorf("put run %s over revision %d: %w", clip.Text(id.Run, 80), prev, ErrChanged)
	}
	m.last++
	if m.runs == nil {
		m.runs = make(map[ID][]Record)
	}
	r := Record{ID: id, Data: bytes.Clone(data), Revision: m.last, Time: time.Now(), Over: prev, Swapped: true}
	if history = append(history, r); len(history) > HistoryLimit {
		history = append([]Record(nil), history[len(history)-HistoryLimit:]...)
	}
	m.runs[id] = history
	return r.Revision, nil
}

// Get returns the newest checkpoint of a run, see [Store].
func (m *Mem) Get(ctx context.Context, id ID) (Record, error) {
	history, err := m.history(ctx, "get", id)
	return give(newest(history)), err
}

// At returns the checkpoint at a revision, see [Store].
func (m *Mem) At(ctx context.Context, id ID, revision uint64) (Record, error) {
	history, err := m.history(ctx, "get", id)
	for _, r := range history {
		if r.Revision == revision {
			return give(r), nil
		}
	}
	if err == nil {
		err = fmt.Errorf("get revision %d of run %s: %w", revision, clip.Text(id.Run, 80), ErrNotFound)
	}
	return Record{}, err
}

// History returns the checkpoints of a run, see [Store].
func (m *Mem) History(ctx context.Context, id ID) ([]Record, error) {
	history, err := m.history(ctx, "get history of", id)
	var all []Record
	for _, r := range history {
		all = append(all, give(r))
	}
	return all, err
}

func (m *Mem) history(ctx context.Context, op string, id ID) ([]Record, error) {
	if err := m.begin(ctx, op, id.Validate()); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	history := m.runs[id]
	if len(history) == 0 {
		return nil, fmt.Errorf("%s run %s: %w", op, clip.Text(id.Run, 80), ErrNotFound)
	}
	return history[:len(history):len(history)], nil
}

// List yields the runs of an entity, see [Store].
func (m *Mem) List(ctx context.Context, entity string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var err error
		if entity != "" {
			err = subject.ValidateEntity(entity)
		}
		if err := m.begin(ctx, "list", err); err != nil {
			yield(Record{}, err)
			return
		}
		for _, r := range m.snapshot(entity) {
			if err := ctx.Err(); err != nil {
				yield(Record{}, fmt.Errorf("list runs: %w", err))
				return
			}
			if !yield(give(r), nil) {
				return
			}
		}
	}
}

// snapshot returns the newest checkpoint of each run of an entity, or of all for "".
func (m *Mem) snapshot(entity string) []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Record
	for id, history := range m.runs {
		if entity == "" || id.Entity == entity {
			all = append(all, newest(history))
		}
	}
	return all
}

// Delete deletes a run, see [Store].
func (m *Mem) Delete(ctx context.Context, id ID) error {
	if err := m.begin(ctx, "delete", id.Validate()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.runs[id]; !ok {
		return nil
	}
	delete(m.runs, id)
	m.last++
	return nil
}

func (m *Mem) begin(ctx context.Context, op string, err error) error {
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s run: %w", op, err)
	}
	return nil
}

// newest returns the last record of a history, zero if there is none.
func newest(history []Record) Record {
	if len(history) == 0 {
		return Record{}
	}
	return history[len(history)-1]
}

// give returns r with a copy of its data, which the caller may modify.
func give(r Record) Record {
	r.Data = bytes.Clone(r.Data)
	return r
}

package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// Templates stores the schema templates of agents, in [BucketSDSI] below the entity. The
// caller defines the content; an id is a schema_id. A version is written once.
type Templates struct{ kvBucket }

// NewTemplates returns the templates of m's mesh. It does no I/O.
func NewTemplates(js natsjs.JetStream, m subject.Map) *Templates {
	return &Templates{kvBucket{js: js, name: BucketSDSI + m.Suffix()}}
}

// Missing reports whether the server says that there is no [BucketSDSI]. It returns false if JetStream
// does not answer, or if the user lacks the permission to ask.
func (t *Templates) Missing(ctx context.Context) bool {
	return errors.Is(api.Request(ctx, t.js, "STREAM.INFO."+t.stream(), nil, nil), natsjs.ErrStreamNotFound)
}

// Create stores a version, or fails with [ErrExists].
func (t *Templates) Create(ctx context.Context, entity, id string, template []byte) error {
	key, err := sdsiKey(entity, "t", id)
	if err != nil {
		return err
	}
	_, err = t.create(ctx, key, template)
	return t.written(err, ErrExists, "store template %q of %s", id, entity)
}

// Get returns a version, or [ErrNotFound].
func (t *Templates) Get(ctx context.Context, entity, id string) ([]byte, error) {
	key, err := sdsiKey(entity, "t", id)
	if err != nil {
		return nil, err
	}
	e, err := t.get(ctx, key)
	if err != nil {
		return nil, t.explain(err, "get template %q of %s", id, entity)
	}
	return e.value, nil
}

// List returns the versions of an entity's templates, in the order in which they were
// stored.
func (t *Templates) List(ctx context.Context, entity string) ([]Record, error) {
	return t.sdsiRecords(ctx, entity, "t")
}

// Each calls f with every version of every agent, in the order in which they were stored.
func (t *Templates) Each(ctx context.Context, f func(entity string, version Record)) error {
	return t.eachSDSI(ctx, "*.t.*", f)
}

// eachSDSI calls f with the records whose keys match a pattern of escaped tokens.
func (b *kvBucket) eachSDSI(ctx context.Context, pattern string, f func(entity string, r Record)) error {
	messages, err := b.newest(ctx, pattern)
	if err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) {
		return b.explain(err, "list %s", b.name)
	}
	for _, m := range messages {
		tokens := strings.Split(strings.TrimPrefix(m.Subject, b.subject("")), ".")
		e := entryIn(m)
		if len(tokens) != 3 || e.gone || !m.Genuine() {
			continue
		}
		entity, badEntity := subject.Unescape(tokens[0])
		id, badID := subject.Unescape(tokens[2])
		if badEntity == nil && badID == nil {
			f(entity, recordOf(id, e))
		}
	}
	return nil
}

// sdsiRecords returns an entity's templates ("t") or pools ("p").
func (b *kvBucket) sdsiRecords(ctx context.Context, entity, kind string) ([]Record, error) {
	if err := subject.ValidateEntity(entity); err != nil {
		return nil, err
	}
	var all []Record
	err := b.eachSDSI(ctx, subject.Escape(entity)+"."+kind+".*", func(_ string, r Record) { all = append(all, r) })
	return all, err
}

// Pools stores what agents have learned from the key "other", by scenario, in
// [BucketSDSI] below the entity.
type Pools struct{ kvBucket }

// NewPools returns the pools of m's mesh. It does no I/O.
func NewPools(js natsjs.JetStream, m subject.Map) *Pools {
	return &Pools{kvBucket{js: js, name: BucketSDSI + m.Suffix()}}
}

// Get returns a pool and its revision; revision 0 if there is none.
func (p *Pools) Get(ctx context.Context, entity, scenario string) ([]byte, uint64, error) {
	return p.sdsiRecord(ctx, entity, "p", scenario)
}

// List returns the pools of an entity, in the order in which they were changed last.
func (p *Pools) List(ctx context.Context, entity string) ([]Record, error) {
	return p.sdsiRecords(ctx, entity, "p")
}

// Current is like List, and the stream's leader names the pools: a replica that lags behind lacks
// those that were stored a moment ago.
func (p *Pools) Current(ctx context.Context, entity string) ([]Record, error) {
	if err := subject.ValidateEntity(entity); err != nil {
		return nil, err
	}
	prefix := p.subject(subject.Escape(entity) + ".p.")
	subjects, err := api.Subjects(ctx, p.js, p.stream(), prefix+"*")
	if err != nil {
		return nil, err
	}
	var all []Record
	for subj := range subjects {
		id, err := subject.Unescape(strings.TrimPrefix(subj, prefix))
		if err != nil {
			continue
		}
		switch e, err := p.current(ctx, strings.TrimPrefix(subj, p.subject(""))); {
		case err == nil && !e.gone:
			all = append(all, recordOf(id, e))
		case err != nil && !errors.Is(err, natsjs.ErrMsgNotFound):
			return nil, p.explain(err, "list what %s has learned", entity)
		}
	}
	sorted.By(all, func(a, b Record) int { return cmp.Compare(a.Revision, b.Revision) })
	return all, nil
}

// Swap replaces a pool at one revision, 0 for a new one, or fails with [ErrChanged].
func (p *Pools) Swap(ctx context.Context, entity, scenario string, pool []byte, revision uint64) (uint64, error) {
	return p.swapSDSI(ctx, entity, "p", scenario, pool, revision)
}

// optOuts is the id of the one record of its kind.
const optOuts = "clients"

// OptOuts returns the clients from whom an agent learns nothing, and the revision; revision 0
// if none has opted out yet.
func (p *Pools) OptOuts(ctx context.Context, entity string) ([]byte, uint64, error) {
	return p.sdsiRecord(ctx, entity, "o", optOuts)
}

// SwapOptOuts replaces them at one revision, as [Pools.Swap] does a pool.
func (p *Pools) SwapOptOuts(ctx context.Context, entity string, clients []byte, revision uint64) (uint64, error) {
	return p.swapSDSI(ctx, entity, "o", optOuts, clients, revision)
}

// sdsiRecord returns a record and its revision; revision 0 if there is none. It returns what the
// stream's leader has: a worker that reads a pool from one replica, and then an older list of
// opt-outs from another, would learn from a client that has opted out.
func (b *kvBucket) sdsiRecord(ctx context.Context, entity, kind, id string) ([]byte, uint64, error) {
	key, err := sdsiKey(entity, kind, id)
	if err != nil {
		return nil, 0, err
	}
	e, err := b.current(ctx, key)
	if errors.Is(err, natsjs.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, b.explain(err, "get what %s has learned, %q", entity, id)
	}
	if e.gone {
		return nil, e.revision, nil
	}
	return e.value, e.revision, nil
}

func (b *kvBucket) swapSDSI(ctx context.Context, entity, kind, id string, value []byte, revision uint64) (uint64, error) {
	key, err := sdsiKey(entity, kind, id)
	if err != nil {
		return 0, err
	}
	next, err := b.update(ctx, key, value, revision)
	return next, b.written(err, ErrChanged, "store what %s has learned, %q", entity, id)
}

// sdsiKey returns the key of an entity's template ("t"), pool ("p") or opt-outs ("o").
func sdsiKey(entity, kind, id string) (string, error) {
	if err := subject.ValidateEntity(entity); err != nil {
		return "", err
	}
	token := subject.Escape(id)
	if len(token) > subject.MaxID {
		return "", fmt.Errorf("id of %d bytes when escaped, at most %d are possible", len(token), subject.MaxID)
	}
	return subject.Escape(entity) + "." + kind + "." + token, nil
}

// SDSISubjects is the pattern of the keys of an entity's templates, pools and opt-outs, for
// permissions.
func SDSISubjects(m subject.Map, entity string) string {
	return "$KV." + BucketSDSI + m.Suffix() + "." + subject.Escape(entity) + ".>"
}

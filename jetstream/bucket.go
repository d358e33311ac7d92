package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// kvBucket is a KV bucket whose keys are escaped ids. It reads by direct get and writes
// by publishing. nats.go's own handle lists and watches by consumers, and a user who may
// create a push consumer can make the server publish on any subject. A reader needs
// permission for $JS.API.DIRECT.GET.KV_<bucket> and the subjects below it.
type kvBucket struct {
	js   natsjs.JetStream
	name string
}

// kvEntry is a key at one revision.
type kvEntry struct {
	value    []byte
	revision uint64
	created  time.Time
	gone     bool // deleted, or purged
	stray    bool // not published by a user, see [api.Message.Genuine]
}

func (b *kvBucket) stream() string { return "KV_" + b.name }

func (b *kvBucket) subject(key string) string { return "$KV." + b.name + "." + key }

func (b *kvBucket) explain(err error, format string, args ...any) error {
	return api.Explain(b.js.Conn(), err, format, args...)
}

// written translates the error of a write; another revision of the key is reported as changed.
func (b *kvBucket) written(err, changed error, format string, args ...any) error {
	if api.IsChanged(err) {
		return fmt.Errorf(format+": %w", append(args, changed)...)
	}
	return api.Uncertain(b.explain(err, format, args...))
}

// get returns the newest revision of a key, or [natsjs.ErrMsgNotFound].
func (b *kvBucket) get(ctx context.Context, key string) (kvEntry, error) {
	e, err := b.last(ctx, key)
	if err == nil && e.gone {
		err = natsjs.ErrMsgNotFound
	}
	return e, err
}

// last is like get but also returns the marker of a deletion.
func (b *kvBucket) last(ctx context.Context, key string) (kvEntry, error) {
	m, err := api.Newest(ctx, b.js, b.stream(), b.subject(key))
	e := entryIn(m)
	e.stray = err == nil && !m.Genuine()
	e.gone = e.gone || e.stray
	return e, err
}

// current is like last, and reads until a replica answers that has what the stream's leader has.
// Where the leader does not tell, any replica's answer counts: to a user who may not write the key,
// and, while the account has no storage left, to one who may not read the whole bucket.
func (b *kvBucket) current(ctx context.Context, key string) (kvEntry, error) {
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		e, err := b.last(ctx, key)
		if err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) {
			return e, err
		}
		last, asked := api.LastOfLeader(ctx, b.js, b.stream(), api.KeyPrefix(b.js)+b.subject(key), b.subject(key))
		switch {
		case asked == nil && last <= e.revision, errors.Is(asked, ErrDenied), api.UsedUp(asked):
			return e, err
		case asked != nil:
			return kvEntry{}, asked
		case wait > time.Second:
			return kvEntry{}, fmt.Errorf("%w: a replica lags behind", ErrUnavailable)
		}
		if !pause.For(ctx, wait) {
			return kvEntry{}, ctx.Err()
		}
	}
}

// at returns the entry of a key at one revision, or [natsjs.ErrMsgNotFound].
func (b *kvBucket) at(ctx context.Context, key string, revision uint64) (kvEntry, error) {
	batch, err := api.Direct(ctx, b.js, b.stream(), map[string]any{"seq": revision, "next_by_subj": b.subject(key), "batch": 1})
	if err != nil {
		return kvEntry{}, err
	}
	if len(batch.Messages) != 1 || batch.Messages[0].Seq != revision || api.Deleted(batch.Messages[0].Header) {
		return kvEntry{}, natsjs.ErrMsgNotFound
	}
	return entryIn(batch.Messages[0]), nil
}

// history returns the revisions of a key that the bucket still has, the oldest first.
func (b *kvBucket) history(ctx context.Context, key string) ([]kvEntry, error) {
	var all []kvEntry
	for m, err := range api.Scan(ctx, b.js, b.stream(), b.subject(key), 1) {
		if err != nil {
			return nil, err
		}
		all = append(all, entryIn(m))
	}
	if len(all) == 0 {
		return nil, natsjs.ErrMsgNotFound
	}
	return all, nil
}

func entryIn(m Message) kvEntry {
	return kvEntry{value: m.Data, revision: m.Seq, created: m.Time, gone: api.Deleted(m.Header)}
}

// create writes a key that must not exist.
func (b *kvBucket) create(ctx context.Context, key string, value []byte) (uint64, error) {
	revision, err := b.update(ctx, key, value, 0)
	if !api.IsWrongSequence(err) {
		return revision, err
	}
	if e, failed := b.last(ctx, key); failed == nil && e.gone {
		return b.update(ctx, key, value, e.revision)
	}
	return 0, err
}

// update replaces a key at one revision; 0 stands for a key that never existed.
func (b *kvBucket) update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return b.write(ctx, key, value, nats.Header{natsjs.ExpectedLastSubjSeqHeader: {strconv.FormatUint(revision, 10)}})
}

// remove writes the marker of a deletion; if revision is not 0 the key must be at it.
func (b *kvBucket) remove(ctx context.Context, key string, revision uint64) error {
	header := nats.Header{"KV-Operation": {"DEL"}}
	if revision != 0 {
		header.Set(natsjs.ExpectedLastSubjSeqHeader, strconv.FormatUint(revision, 10))
	}
	_, err := b.write(ctx, key, nil, header)
	return err
}

func (b *kvBucket) write(ctx context.Context, key string, value []byte, header nats.Header) (uint64, error) {
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	header.Set(natsjs.ExpectedStreamHeader, b.stream())
	ack, err := api.Publish(ctx, b.js, &nats.Msg{Subject: api.KeyPrefix(b.js) + b.subject(key), Data: value, Header: header})
	if errors.Is(err, natsjs.ErrNoStreamResponse) {
		return 0, cmp.Or(b.missing(ctx), err)
	}
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// missing returns an error if the bucket does not exist.
func (b *kvBucket) missing(ctx context.Context) error {
	if err := api.Request(ctx, b.js, "STREAM.INFO."+b.stream(), nil, nil); errors.Is(err, natsjs.ErrStreamNotFound) {
		return err
	}
	return nil
}

// read calls each with the newest revision of every key, markers of deletions and strays
// included, in the order in which they were written.
func (b *kvBucket) read(ctx context.Context, each func(id string, e kvEntry)) error {
	messages, err := b.newest(ctx, ">")
	if err != nil {
		return b.explain(err, "list %s", b.name)
	}
	b.each(messages, each)
	return nil
}

// each calls a function with the entries in messages.
func (b *kvBucket) each(messages []Message, f func(id string, e kvEntry)) {
	for _, m := range messages {
		if id, ok := b.id(m); ok {
			e := entryIn(m)
			e.stray = !m.Genuine()
			f(id, e)
		}
	}
}

// newest returns the newest message of every key that matches a pattern.
func (b *kvBucket) newest(ctx context.Context, pattern string) ([]Message, error) {
	messages, err := api.Last(ctx, b.js, b.stream(), b.subject(pattern))
	if errors.Is(err, ErrTooLarge) { // more keys than one answer has
		return b.scanLast(ctx, pattern)
	}
	return messages, err
}

// scanLast reads all messages of the keys that match a pattern, and returns the newest of each.
func (b *kvBucket) scanLast(ctx context.Context, pattern string) ([]Message, error) {
	bySubject := map[string]Message{}
	for m, err := range api.ScanSince(ctx, b.js, b.stream(), b.subject(pattern), 1, time.Time{}) {
		if err != nil {
			return nil, err
		}
		bySubject[m.Subject] = m
	}
	messages := slices.Collect(maps.Values(bySubject))
	sorted.By(messages, func(x, y Message) int { return cmp.Compare(x.Seq, y.Seq) })
	return messages, nil
}

// id returns the id that the key of a message stands for; false if this package did not
// write the key.
func (b *kvBucket) id(m Message) (string, bool) {
	id, err := subject.Unescape(m.Subject[len(b.subject("")):])
	return id, err == nil
}

// Intervals at which [kvBucket.watch] polls.
const (
	watchLook = 2 * time.Second // the bucket's last sequence
	watchAnew = time.Minute     // the whole bucket: a purge leaves no message
)

// watch calls changed with every existing entry, and from then on with every change,
// until ctx ends; then it returns nil. It polls every two seconds. Calls come one at a
// time, from the goroutine that called watch. An entry that was passed to changed and is
// deleted later is passed again, with gone set. If ready is not nil, it is called after
// the first complete read.
//
// watch survives reconnects, restarts of the server, and the loss and return of the
// bucket. It fails at once if the bucket does not exist or may not be read, and later
// only when the connection is closed for good.
func (b *kvBucket) watch(ctx context.Context, changed func(id string, e kvEntry), ready func()) error {
	return b.newWatch(changed).run(ctx, ready)
}

func (b *kvBucket) newWatch(changed func(id string, e kvEntry)) *bucketWatch {
	return &bucketWatch{b: b, changed: changed, known: map[string]reported{}, bounded: api.Bounded}
}

// knows says that the watch's caller has a record already.
func (w *bucketWatch) knows(r Record) {
	w.known[r.ID] = reported{r.Revision, r.Time.UnixNano()}
	if r.Revision > w.end {
		w.end, w.at = r.Revision, r.Time
	}
}

func (w *bucketWatch) run(ctx context.Context, ready func()) error {
	err := w.anew(ctx)
	for errors.Is(err, errBehind) && pause.For(ctx, watchLook) {
		err = w.anew(ctx)
	}
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	if ready != nil {
		ready()
	}
	nc := w.b.js.Conn()
	status := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	tick, again := time.NewTicker(watchLook), time.NewTicker(watchAnew)
	defer tick.Stop()
	defer again.Stop()
	look := w.more
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-status:
			look = w.anew
		case <-again.C:
			look = w.anew
		case <-tick.C:
		}
		if nc.IsClosed() {
			return fmt.Errorf("watch %s: %w", w.b.name, nats.ErrConnectionClosed)
		}
		if look(ctx) == nil {
			look = w.more
		}
	}
}

// reported is the message of a report. A bucket that was recreated has another message with the
// same sequence.
type reported struct {
	revision uint64
	stored   int64 // the time, in nanoseconds
}

type bucketWatch struct {
	b       *kvBucket
	changed func(string, kvEntry)
	known   map[string]reported // what was last passed to changed, of the ids that exist
	end     uint64              // the last sequence that was read
	at      time.Time           // of that message
	doubts  int                 // how often in a row the bucket seemed to end before that

	// bounded is [api.Bounded]. It bounds the requests of a read, and not the reports of what was read.
	bounded func(context.Context) (context.Context, context.CancelFunc)
}

// ignoreEnd returns err, or nil if ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// mostDoubts is how often in a row what the bucket has is not believed.
const mostDoubts = 3

// errBehind: a replica that lags behind has answered, or the bucket's last messages were deleted.
var errBehind = fmt.Errorf("%w: a replica lags behind", ErrUnavailable)

// anew reads the whole bucket and reports the differences.
func (w *bucketWatch) anew(ctx context.Context) error {
	reading, cancel := w.bounded(ctx)
	defer cancel()
	messages, err := w.b.newest(reading, ">")
	if err != nil {
		return w.b.explain(err, "list %s", w.b.name)
	}
	var last Message
	if n := len(messages); n > 0 {
		last = messages[n-1]
	}
	// A bucket that was made anew has a later message under a smaller sequence.
	if last.Seq < w.end && !last.Time.After(w.at) && w.doubts < mostDoubts {
		w.doubts++
		return errBehind
	}
	w.doubts = 0
	there := map[string]bool{}
	w.b.each(messages, func(id string, e kvEntry) {
		if e.stray { // the entry below the stray is unknown, and not deleted
			there[id] = true
			return
		}
		there[id] = !e.gone
		w.entry(ctx, id, e)
	})
	for id := range w.known {
		if !there[id] {
			w.entry(ctx, id, kvEntry{gone: true})
		}
	}
	if ctx.Err() != nil {
		return ctx.Err() // not all was reported
	}
	w.end, w.at = last.Seq, last.Time
	return nil
}

// more reads what was written since the last read.
func (w *bucketWatch) more(ctx context.Context) error {
	reading, cancel := w.bounded(ctx)
	defer cancel()
	m, err := api.Newest(reading, w.b.js, w.b.stream(), w.b.subject(">"))
	switch {
	case errors.Is(err, natsjs.ErrMsgNotFound):
		m.Seq = 0
	case err != nil:
		return w.b.explain(err, "watch %s", w.b.name)
	}
	switch {
	case m.Seq == w.end && m.Time.Equal(w.at):
		w.doubts = 0
		return nil
	case m.Seq <= w.end: // the bucket was recreated, or its last message was deleted
		return w.anew(ctx)
	}
	for m, err := range api.Scan(reading, w.b.js, w.b.stream(), w.b.subject(">"), w.end+1) {
		if err != nil {
			return w.b.explain(err, "watch %s", w.b.name)
		}
		if id, ok := w.b.id(m); ok {
			w.entry(ctx, id, entryIn(m))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.end, w.at = m.Seq, m.Time
	}
	if !m.Genuine() && m.Seq > w.end {
		w.end, w.at = m.Seq, m.Time
	}
	w.doubts = 0
	return nil
}

// entry passes an entry to changed, unless changed knows it. It does not call changed after ctx,
// which is that of the watch, has ended.
func (w *bucketWatch) entry(ctx context.Context, id string, e kvEntry) {
	was, known := w.known[id]
	now := reported{e.revision, e.created.UnixNano()}
	switch {
	case ctx.Err() != nil:
	case e.gone && known:
		delete(w.known, id)
		w.changed(id, e)
	case !e.gone && was != now:
		w.known[id] = now
		w.changed(id, e)
	}
}

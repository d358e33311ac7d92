package chunks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
)

// A Store keeps objects in the stream of an object store. Many goroutines may use it at
// once.
type Store struct {
	js     natsjs.JetStream
	bucket string
}

// New returns the object store with a name. It does no I/O.
func New(js natsjs.JetStream, bucket string) *Store { return &Store{js, bucket} }

// Stream is the stream in which the chunks are.
func (s *Store) Stream() string { return "OBJ_" + s.bucket }

// prefix is the prefix of the subjects of all chunks.
func (s *Store) prefix() string { return "$O." + s.bucket + ".C." }

// Errors for errors.Is.
var (
	// ErrGone: a record refers to an object that does not exist.
	ErrGone = errors.New("its object was not found")
	// ErrOther: the object is not the one that the record refers to.
	ErrOther = errors.New("its object is another one")
)

// Size is the size of chunks, as in nats.go's object stores. Where the server's max_payload is
// smaller, they are.
const Size = 128 << 10

// Most returns size, or less if a message to the server cannot have so many bytes beside its
// headers.
func Most(conn *nats.Conn, size int) int {
	const headers = 4 << 10
	if most := conn.MaxPayload(); most > headers {
		return min(size, int(most)-headers)
	}
	return size
}

// ChunkSize is the size of the chunks that are written now.
func (s *Store) ChunkSize() int { return Most(s.js.Conn(), Size) }

// Progress says how much of a document is stored.
type Progress struct{ Chunks, Bytes int }

// Write stores a document in chunks, each on its own subject below the run's
// entity, so that permissions can restrict who may read and write it. nats.go's object
// stores (ADR-20) put all chunks of an object on one subject that contains neither the
// run nor its entity. If Write fails, a sweep collects the stored chunks, because
// no record refers to them.
func (s *Store) Write(ctx context.Context, name string, data []byte) error {
	_, err := s.WriteFrom(ctx, name, data, Progress{})
	return err
}

// WriteFrom is Write for a document of which a part is stored. It returns how much is stored
// afterwards. Each chunk may take as long as one request.
func (s *Store) WriteFrom(ctx context.Context, name string, data []byte, done Progress) (Progress, error) {
	for done.Bytes < len(data) {
		end := min(done.Bytes+s.ChunkSize(), len(data))
		// nats-server maps $KV into other domains, but not $O.
		msg := &nats.Msg{
			Subject: s.chunk(name, strconv.Itoa(done.Chunks)), Data: data[done.Bytes:end], Header: nats.Header{natsjs.ExpectedStreamHeader: {s.Stream()}},
		}
		if err := s.publish(ctx, msg); err != nil {
			return done, err
		}
		done = Progress{done.Chunks + 1, end}
	}
	return done, nil
}

func (s *Store) publish(ctx context.Context, msg *nats.Msg) error {
	ctx, cancel := api.OneRequest(ctx)
	defer cancel()
	_, err := api.Publish(ctx, s.js, msg)
	return err
}

// Read fetches a document and verifies its size and digest. A replica that lags behind may miss
// chunks, so it tries several times for each. Whether a chunk exists that no replica had, it asks
// the stream's leader: if so, the error is an [api.ErrUnavailable]. For a user who may not ask, it
// does not exist. Each chunk may take as long as one request.
func (s *Store) Read(ctx context.Context, o state.Object) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("fetch document %s: %w", o.Name, api.Explain(s.js.Conn(), err, "read %s", s.Stream()))
	}
	var all [][]byte // joined at the end: the size in the record may be wrong
	for try, size := 0, int64(0); ; try++ {
		more, err := s.readChunks(ctx, o, len(all), o.Size-size)
		if err != nil {
			return fail(err)
		}
		if len(more) > 0 {
			try = 0
		}
		for _, chunk := range more {
			all, size = append(all, chunk), size+int64(len(chunk))
		}
		data := bytes.Join(all, nil)
		if len(data) == 0 {
			if data, err = s.readOld(ctx, o); err != nil {
				return fail(err)
			}
		}
		switch {
		case int64(len(data)) == o.Size && api.Digest(data) == o.Digest:
			return data, nil
		case int64(len(data)) >= o.Size:
			return nil, fmt.Errorf("document %s: %w: its digest is not %s", o.Name, ErrOther, o.Digest)
		case try == 6:
			there, err := s.exists(ctx, s.chunk(o.Name, strconv.Itoa(len(all))))
			switch {
			case err != nil:
				return fail(err)
			case there:
				return nil, fmt.Errorf("fetch document %s: %w: the replicas that answer lag behind: they have %d bytes of %d", o.Name, api.ErrUnavailable, len(data), o.Size)
			}
			return nil, fmt.Errorf("fetch document %s: %w: there are %d bytes of %d", o.Name, ErrGone, len(data), o.Size)
		}
		if !pause.For(ctx, 10*time.Millisecond<<try) {
			return nil, fmt.Errorf("fetch document %s: %w", o.Name, ctx.Err())
		}
	}
}

// readChunks returns the chunks of a document from one on, up to a size or the first missing one.
func (s *Store) readChunks(ctx context.Context, o state.Object, from int, size int64) (all [][]byte, err error) {
	for ; size > 0; from++ {
		m, err := api.Newest(ctx, s.js, s.Stream(), s.chunk(o.Name, strconv.Itoa(from)))
		if errors.Is(err, natsjs.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		all, size = append(all, m.Data), size-int64(len(m.Data))
	}
	return all, nil
}

// exists asks the stream's leader whether there is a chunk. It returns false for a user who may
// not ask: who may neither write the chunk nor read all of the stream.
func (s *Store) exists(ctx context.Context, subj string) (bool, error) {
	last, err := api.LastOfLeader(ctx, s.js, s.Stream(), subj, subj)
	if errors.Is(err, api.ErrDenied) {
		if last, err = api.LeaderLast(ctx, s.js, s.Stream(), subj); errors.Is(err, api.ErrDenied) {
			return false, nil
		}
	}
	return last > 0, err
}

// Delete deletes all chunks of an object; with a sequence of the stream, only those up to that.
func (s *Store) Delete(ctx context.Context, name string, last uint64) error {
	filter := s.chunk(name, "*")
	purge := api.Purge{Filter: filter}
	if last > 0 {
		purge.Before = last + 1
	}
	_, err := purge.Do(ctx, s.js, s.Stream())
	return api.Explain(s.js.Conn(), err, "take away %s", filter)
}

// Object describes the object with a name and these data.
func Object(name string, data []byte) state.Object {
	return state.Object{Name: name, Size: int64(len(data)), Digest: api.Digest(data)}
}

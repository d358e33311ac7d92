package jetstream

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// MaxInline is the size in bytes of the largest document that is stored in [BucketState]
// itself.
const MaxInline = 256 << 10

// inline is MaxInline, or less if the server's max_payload is smaller.
func (s *States) inline() int {
	const headers = 4 << 10
	if most := s.js.Conn().MaxPayload(); most > headers {
		return min(MaxInline, int(most)-headers)
	}
	return MaxInline
}

// errObjectGone: a record refers to an object that does not exist.
var errObjectGone = errors.New("its object was not found")

// putObject stores the document of a message as an object, and replaces it in the message
// by a reference. Each object has a random name, so writers cannot overwrite each
// other's.
func (s *States) putObject(ctx context.Context, id state.ID, msg *nats.Msg) (name string, err error) {
	sum := sha256.Sum256(msg.Data)
	o := state.Object{Name: s.object + stateKey(id) + "/" + rand.Text(), Size: int64(len(msg.Data)), Digest: "sha256:" + hex.EncodeToString(sum[:])}
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	if err := s.writeObject(ctx, o.Name, msg.Data); err != nil {
		return "", api.Explain(s.js.Conn(), err, "store the document of run %s of %s", id.Run, id.Entity)
	}
	msg.Header[HeaderObject] = []string{o.Digest + " " + strconv.FormatInt(o.Size, 10) + " " + o.Name}
	if msg.Data, err = state.Refer(msg.Data, o); err != nil { // not a document of ours: the header is the only reference
		msg.Data = []byte("{}")
	}
	msg.Header.Set("Content-Type", "application/json")
	return o.Name, nil
}

// chunkSize is the chunk size of nats.go's object stores.
const chunkSize = 128 << 10

// writeObject stores a document in chunks, each on its own subject below the run's
// entity, so that permissions can restrict who may read and write it. nats.go's object
// stores (ADR-20) put all chunks of an object on one subject that contains neither the
// run nor its entity. If writeObject fails, a sweep collects the stored chunks, because
// no record refers to them.
func (s *States) writeObject(ctx context.Context, name string, data []byte) error {
	i := 0
	for chunk := range slices.Chunk(data, chunkSize) {
		// nats-server maps $KV into other domains, but not $O.
		msg := &nats.Msg{Subject: s.chunk(name, strconv.Itoa(i)), Data: chunk, Header: nats.Header{natsjs.ExpectedStreamHeader: {s.objectStream()}}}
		if _, err := s.js.PublishMsg(ctx, msg); err != nil {
			return err
		}
		i++
	}
	return nil
}

// objectOf returns the object that a message refers to.
func objectOf(h nats.Header) (state.Object, bool) {
	digest, rest, _ := strings.Cut(h.Get(HeaderObject), " ")
	size, name, ok := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(size, 10, 64)
	return state.Object{Name: name, Size: n, Digest: digest}, ok && err == nil && n >= 0 && name != "" && digest != ""
}

// getObject fetches a document and verifies its size and digest. A replica that lags
// behind may miss chunks, so it tries several times.
func (s *States) getObject(ctx context.Context, o state.Object) ([]byte, error) {
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	for try := 0; ; try++ {
		data, err := s.readChunks(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("fetch document %s: %w", o.Name, api.Explain(s.js.Conn(), err, "read %s", s.objectStream()))
		}
		sum := sha256.Sum256(data)
		switch {
		case int64(len(data)) == o.Size && "sha256:"+hex.EncodeToString(sum[:]) == o.Digest:
			return data, nil
		case int64(len(data)) >= o.Size:
			return nil, fmt.Errorf("document %s: its digest is not %s", o.Name, o.Digest)
		case try == 6:
			return nil, fmt.Errorf("fetch document %s: %w: there are %d bytes of %d", o.Name, errObjectGone, len(data), o.Size)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("fetch document %s: %w", o.Name, ctx.Err())
		case <-time.After(10 * time.Millisecond << try):
		}
	}
}

// readChunks returns the beginning of a document, up to the first missing chunk.
func (s *States) readChunks(ctx context.Context, o state.Object) ([]byte, error) {
	data := make([]byte, 0, min(o.Size, 64*mib))
	for i := 0; int64(len(data)) < o.Size; i++ {
		m, err := api.Newest(ctx, s.js, s.objectStream(), s.chunk(o.Name, strconv.Itoa(i)))
		if errors.Is(err, natsjs.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		data = append(data, m.Data...)
	}
	if len(data) == 0 {
		return s.readOldChunks(ctx, o)
	}
	return data, nil
}

// readOldChunks reads a document of a release before topology 5, which stored objects as
// nats.go does. The migration to topology 5 moves them; until then only a user who may
// read the whole store can read them.
func (s *States) readOldChunks(ctx context.Context, o state.Object) (data []byte, err error) {
	token := o.Name[strings.LastIndexByte(o.Name, '/')+1:]
	for m, err := range api.Scan(ctx, s.js, s.objectStream(), s.chunks()+token, 1) {
		if errors.Is(err, ErrDenied) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if data = append(data, m.Data...); int64(len(data)) > o.Size {
			break
		}
	}
	return data, nil
}

// dropObject deletes an object that no record refers to. If it fails, as without the
// permission, a sweep deletes the object later.
func (s *States) dropObject(ctx context.Context, name string) {
	if s.fenced.Load() {
		return
	}
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	_ = s.purgeObject(ctx, name)
}

func (s *States) purgeObject(ctx context.Context, name string) error {
	filter := s.chunk(name, "*")
	err := api.Request(ctx, s.js, "STREAM.PURGE."+s.objectStream(), map[string]string{"filter": filter}, nil)
	return api.Explain(s.js.Conn(), err, "take away %s", filter)
}

func (s *States) objectStream() string { return "OBJ_" + ObjectsState + s.m.Suffix() }

// chunks is the prefix of the subjects of all chunks.
func (s *States) chunks() string { return "$O." + ObjectsState + s.m.Suffix() + ".C." }

// chunk returns the subject of one chunk of an object, or with "*" of all its chunks. An
// object has the name <entity>.<run>/<token>, with a prefix for handoffs.
func (s *States) chunk(name, n string) string {
	if rest, ok := strings.CutPrefix(name, handoffObject); ok {
		name = handoffMark + rest
	}
	return s.chunks() + strings.ReplaceAll(name, "/", ".") + "." + n
}

// objectAt returns the name of the object that a chunk's subject belongs to.
func (s *States) objectAt(subj string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(subj, s.chunks())
	if !ok {
		return "", false
	}
	i := strings.LastIndexByte(rest, '.')
	if i < 0 {
		return "", false // of a release that stored objects as nats.go does
	}
	if rest = rest[:i]; strings.LastIndexByte(rest, '.') < 0 {
		return "", false
	}
	i = strings.LastIndexByte(rest, '.')
	name = rest[:i] + "/" + rest[i+1:]
	if of, ok := strings.CutPrefix(name, handoffMark); ok {
		name = handoffObject + of
	}
	return name, true
}

// The names of handoff objects begin with handoffObject. In the subjects of their chunks
// handoffMark stands instead: no escaped entity begins with it.
const (
	handoffObject = "handoff/"
	handoffMark   = "=handoff."
)

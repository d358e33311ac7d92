package jetstream

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// MaxInline is the size of the largest document that is kept in [BucketState]
// itself, in bytes.
const MaxInline = 256 << 10

// inline is MaxInline, or less where the server takes less.
func (s *States) inline() int {
	const headers = 4 << 10
	if most := s.js.Conn().MaxPayload(); most > headers {
		return min(MaxInline, int(most)-headers)
	}
	return MaxInline
}

// errObjectGone: a record refers to an object that is not there.
var errObjectGone = errors.New("its object is gone")

// putObject stores the document of a message as an object, and makes the message
// refer to it. Each has a name of its own: nobody writes over another's.
func (s *States) putObject(ctx context.Context, id state.ID, msg *nats.Msg) (name string, err error) {
	sum := sha256.Sum256(msg.Data)
	o := state.Object{Name: stateKey(id) + "/" + rand.Text(), Size: int64(len(msg.Data)), Digest: "sha256:" + hex.EncodeToString(sum[:])}
	ctx, cancel := bounded(ctx)
	defer cancel()
	objects, err := s.objectStore(ctx)
	if err != nil {
		return "", err
	}
	_, err = objects.Put(ctx, natsjs.ObjectMeta{Name: o.Name, Headers: nats.Header{"Content-Type": msg.Header["Content-Type"]}}, strings.NewReader(string(msg.Data)))
	if err != nil {
		// Whatever of it is stored, no record refers to it.
		return "", explain(s.js.Conn(), err, "store the document of run %s of %s", id.Run, id.Entity)
	}
	msg.Header[HeaderObject] = []string{o.Digest + " " + strconv.FormatInt(o.Size, 10) + " " + o.Name}
	if msg.Data, err = state.Refer(msg.Data, o); err != nil { // no document of ours: then the header is all there is
		msg.Data = []byte("{}")
	}
	msg.Header.Set("Content-Type", "application/json")
	return o.Name, nil
}

// objectOf is the object that a message refers to.
func objectOf(h nats.Header) (state.Object, bool) {
	digest, rest, _ := strings.Cut(h.Get(HeaderObject), " ")
	size, name, ok := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(size, 10, 64)
	return state.Object{Name: name, Size: n, Digest: digest}, ok && err == nil
}

// getObject fetches a document and verifies its digest. A replica that is
// behind may not have it yet, so it tries for a while.
func (s *States) getObject(ctx context.Context, o state.Object) ([]byte, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	objects, err := s.objectStore(ctx)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		data, err := objects.GetBytes(ctx, o.Name)
		if err == nil {
			if sum := sha256.Sum256(data); "sha256:"+hex.EncodeToString(sum[:]) != o.Digest {
				return nil, fmt.Errorf("document %s: its digest is not %s", o.Name, o.Digest)
			}
			return data, nil
		}
		if !errors.Is(err, natsjs.ErrObjectNotFound) {
			return nil, explain(s.js.Conn(), err, "fetch document %s", o.Name)
		}
		if try == 5 {
			return nil, fmt.Errorf("fetch document %s: %w", o.Name, errObjectGone)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("fetch document %s: %w", o.Name, ctx.Err())
		case <-time.After(10 * time.Millisecond << try):
		}
	}
}

// dropObject takes away an object that no record refers to. What it fails to
// do, a sweep does later.
func (s *States) dropObject(ctx context.Context, name string) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	objects, err := s.objectStore(ctx)
	if err != nil {
		return
	}
	if info, err := objects.GetInfo(ctx, name); err == nil {
		_ = s.purgeObject(ctx, info.Name, info.NUID)
	}
}

// purgeObject takes away an object with its chunks. nats.go's own Delete would
// leave a marker, for ever.
func (s *States) purgeObject(ctx context.Context, name, nuid string) error {
	bucket := ObjectsState + s.m.Suffix()
	filters := []string{"$O." + bucket + ".C." + nuid}
	if name != "" {
		filters = append(filters, "$O."+bucket+".M."+base64.URLEncoding.EncodeToString([]byte(name)))
	}
	for _, f := range filters {
		if err := request(ctx, s.js, "STREAM.PURGE.OBJ_"+bucket, map[string]string{"filter": f}, nil); err != nil {
			return explain(s.js.Conn(), err, "take away %s", f)
		}
	}
	return nil
}

func (s *States) objectStore(ctx context.Context) (natsjs.ObjectStore, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		name := ObjectsState + s.m.Suffix()
		objects, err := s.js.ObjectStore(ctx, name)
		if err != nil {
			return nil, explain(s.js.Conn(), err, "open %s", name)
		}
		s.objects = objects
	}
	return s.objects, nil
}

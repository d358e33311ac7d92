package jetstream

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	o := state.Object{Name: s.object + stateKey(id) + "/" + rand.Text(), Size: int64(len(msg.Data)), Digest: "sha256:" + hex.EncodeToString(sum[:])}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := s.writeObject(ctx, o.Name, msg.Header.Get("Content-Type"), msg.Data); err != nil {
		return "", explain(s.js.Conn(), err, "store the document of run %s of %s", id.Run, id.Entity)
	}
	msg.Header[HeaderObject] = []string{o.Digest + " " + strconv.FormatInt(o.Size, 10) + " " + o.Name}
	if msg.Data, err = state.Refer(msg.Data, o); err != nil { // no document of ours: then the header is all there is
		msg.Data = []byte("{}")
	}
	msg.Header.Set("Content-Type", "application/json")
	return o.Name, nil
}

// chunkSize is nats.go's.
const chunkSize = 128 << 10

// writeObject stores an object as nats.go does (ADR-20). nats.go 1.55 leaves a
// goroutine behind for some objects (the one that its publisher starts for
// reconnects, where the publisher ends before it begins). What is stored when it
// fails, a sweep collects: nothing refers to it.
func (s *States) writeObject(ctx context.Context, name, contentType string, data []byte) error {
	h := sha256.New()
	h.Write(data)
	info := natsjs.ObjectInfo{
		ObjectMeta: natsjs.ObjectMeta{Name: name, Headers: nats.Header{"Content-Type": {contentType}}, Opts: &natsjs.ObjectMetaOptions{ChunkSize: chunkSize}},
		Bucket:     ObjectsState + s.m.Suffix(), NUID: objectToken(name), Size: uint64(len(data)), Digest: natsjs.GetObjectDigestValue(h),
	}
	for chunk := range slices.Chunk(data, chunkSize) {
		info.Chunks++
		if _, err := s.js.PublishMsg(ctx, &nats.Msg{Subject: s.chunkSubject(info.NUID), Data: chunk}); err != nil {
			return err
		}
	}
	meta, err := json.Marshal(info)
	if err != nil {
		return err
	}
	_, err = s.js.PublishMsg(ctx, &nats.Msg{Subject: s.metaSubject(name), Data: meta, Header: nats.Header{natsjs.MsgRollup: {natsjs.MsgRollupSubject}}})
	return err
}

// objectOf is the object that a message refers to.
func objectOf(h nats.Header) (state.Object, bool) {
	digest, rest, _ := strings.Cut(h.Get(HeaderObject), " ")
	size, name, ok := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(size, 10, 64)
	return state.Object{Name: name, Size: n, Digest: digest}, ok && err == nil && n >= 0 && name != "" && digest != ""
}

// objectToken is the last part of an object's name: its chunks are under it.
func objectToken(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// getObject fetches a document and verifies its size and digest. A replica that
// is behind may not have all of it yet, so it tries for a while.
func (s *States) getObject(ctx context.Context, o state.Object) ([]byte, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for try := 0; ; try++ {
		data := make([]byte, 0, min(o.Size, 64*mib))
		for m, err := range scan(ctx, s.js, s.objectStream(), s.chunkSubject(objectToken(o.Name)), 1) {
			if err != nil {
				return nil, fmt.Errorf("fetch document %s: %w", o.Name, err)
			}
			if data = append(data, m.Data...); int64(len(data)) > o.Size {
				break
			}
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

// dropObject takes away an object that no record refers to. What it fails to
// do, a sweep does later.
func (s *States) dropObject(ctx context.Context, name string) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_ = s.purgeObject(ctx, name, objectToken(name))
}

// purgeObject takes away an object with its chunks. nats.go's own Delete would
// leave a marker, for ever.
func (s *States) purgeObject(ctx context.Context, name, nuid string) error {
	filters := []string{s.chunkSubject(nuid)}
	if name != "" {
		filters = append(filters, s.metaSubject(name))
	}
	for _, f := range filters {
		if err := request(ctx, s.js, "STREAM.PURGE."+s.objectStream(), map[string]string{"filter": f}, nil); err != nil {
			return explain(s.js.Conn(), err, "take away %s", f)
		}
	}
	return nil
}

func (s *States) objectStream() string { return "OBJ_" + ObjectsState + s.m.Suffix() }

func (s *States) chunkSubject(nuid string) string {
	return "$O." + ObjectsState + s.m.Suffix() + ".C." + nuid
}

func (s *States) metaSubjects() string { return "$O." + ObjectsState + s.m.Suffix() + ".M.*" }

func (s *States) metaSubject(name string) string {
	return "$O." + ObjectsState + s.m.Suffix() + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

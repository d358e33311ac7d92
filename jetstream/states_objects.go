package jetstream

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/internal/chunks"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
)

// MaxInline is the size in bytes of the largest document that is stored in [BucketState]
// itself.
const MaxInline = 256 << 10

// inlineMax is MaxInline, or less if the server's max_payload is smaller.
func inlineMax(conn *nats.Conn) int {
	const headers = 4 << 10
	if most := conn.MaxPayload(); most > headers {
		return min(MaxInline, int(most)-headers)
	}
	return MaxInline
}

// putObject stores the document of a message as an object, and replaces it in the message
// by a reference. Each object has a random name, so writers cannot overwrite each
// other's.
func (s *States) putObject(ctx context.Context, id state.ID, msg *nats.Msg) (name string, err error) {
	o := chunks.Object(s.object+stateKey(id)+"/"+rand.Text(), msg.Data)
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	if err := s.objects.Write(ctx, o.Name, msg.Data); err != nil {
		return "", api.Explain(s.js.Conn(), err, "store the document of run %s of %s", id.Run, id.Entity)
	}
	msg.Header[HeaderObject] = []string{o.Digest + " " + strconv.FormatInt(o.Size, 10) + " " + o.Name}
	if msg.Data, err = state.Refer(msg.Data, o); err != nil { // not a document of ours: the header is the only reference
		msg.Data = []byte("{}")
	}
	msg.Header.Set("Content-Type", "application/json")
	return o.Name, nil
}

// objectOf returns the object that a message refers to.
func objectOf(h nats.Header) (state.Object, bool) {
	digest, rest, _ := strings.Cut(h.Get(HeaderObject), " ")
	size, name, ok := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(size, 10, 64)
	return state.Object{Name: name, Size: n, Digest: digest}, ok && err == nil && n >= 0 && name != "" && digest != ""
}

// dropObject deletes an object that no record refers to. If it fails, as without the
// permission, a sweep deletes the object later.
func (s *States) dropObject(ctx context.Context, name string) {
	if s.fenced.Load() {
		return
	}
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	_ = s.objects.Delete(ctx, name)
}

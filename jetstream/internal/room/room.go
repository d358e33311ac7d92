package room

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// A Probe asks a server that stands alone whether it can reserve storage. The only way to ask
// is to create an empty stream of that size and to delete it.
type Probe struct {
	JS      natsjs.JetStream
	Name    string // of the stream
	Storage natsjs.StorageType
}

const (
	tries = 10
	step  = 1 << 20 // how exactly Left is found out
)

// wait is the timeout of one request of a probe: a server does not answer a request that
// permissions forbid.
const wait = 2 * time.Second

// Fits reports whether the server can reserve that many bytes. If it is not permitted to
// delete streams, or the server does not say, Fits returns true.
func (p Probe) Fits(ctx context.Context, bytes int64) bool {
	if !p.mayDelete(ctx) {
		return true
	}
	fits, known := p.fits(ctx, bytes)
	// The probe stream of another process may use the space. That process has its answer once its
	// stream exists, so the stream may be deleted here. An attempt that found such a stream does
	// not count.
	for n, all := 0, 0; !fits && known && n < tries && all < 10*tries && pause.For(ctx, 50*time.Millisecond+rand.N(100*time.Millisecond)); all++ {
		if !p.remove(ctx) {
			n++
		}
		fits, known = p.fits(ctx, bytes)
	}
	return fits || !known
}

// Left returns how many bytes the server can reserve, to 1 MiB, of less than most.
func (p Probe) Left(ctx context.Context, most int64) int64 {
	low, high := int64(0), most
	for high-low > step {
		middle := low + (high-low)/2
		fits, known := p.fits(ctx, middle)
		switch {
		case !known:
			return low
		case fits:
			low = middle
		default:
			high = middle
		}
	}
	return low
}

// mayDelete deletes what an earlier probe may have left, and reports whether that was
// permitted.
func (p Probe) mayDelete(ctx context.Context) bool {
	err := p.delete(ctx)
	return err == nil || errors.Is(err, natsjs.ErrStreamNotFound)
}

// remove deletes a probe, of this process or of another, and reports whether there was one.
func (p Probe) remove(ctx context.Context) bool { return p.delete(ctx) == nil }

func (p Probe) delete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	return api.Request(ctx, p.JS, "STREAM.DELETE."+p.Name, nil, nil)
}

// fits reports whether the server can reserve that many bytes; known is false if the
// server did not say. It leaves no stream behind.
func (p Probe) fits(ctx context.Context, bytes int64) (fits, known bool) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, err := p.JS.CreateStream(ctx, natsjs.StreamConfig{
		Name: p.Name, Description: "aeemesh apply asks whether there is room; it may be deleted", MaxBytes: bytes, Storage: p.Storage, Replicas: 1,
	})
	if err == nil {
		return true, p.mayDelete(ctx)
	}
	if known = api.HasNoRoom(err) || api.HasCode(err, api.AccountExceeded); !known {
		p.remove(ctx) // a busy server may have created it, or do so only now, and it would hold the room
	}
	return false, known
}

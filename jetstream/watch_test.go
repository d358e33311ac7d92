package jetstream_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
)

// Finding D1 of the reliability review: the bound fired at the moment at which
// nats.go gave up by itself, and the watcher was taken for one that is there.
func TestAWatcherIsThereOrAnErrorSaysWhy(t *testing.T) {
	unheard := errors.New("nats.go has waited for as long")
	for name, open := range map[string]func(context.Context) (natsjs.KeyWatcher, error){
		"nats.go gives up just when the bound fires": func(context.Context) (natsjs.KeyWatcher, error) {
			<-time.After(time.Second)
			return nil, unheard
		},
		"it is ended by the bound": func(ctx context.Context) (natsjs.KeyWatcher, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"it opens just when the bound fires": func(context.Context) (natsjs.KeyWatcher, error) {
			<-time.After(time.Second)
			return newSilent(), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Which of the two goroutines is first is for the scheduler to say: both
				// orders come up many times.
				for range 2000 {
					w, end, err := jetstream.OpenWatcher(t.Context(), time.Second, open)
					switch {
					case (w == nil) == (err == nil):
						t.Fatalf("watcher %v, error %v", w, err)
					case errors.Is(err, context.Canceled):
						t.Fatalf("nobody has cancelled it: %v", err)
					}
					end()
				}
			})
		})
	}
}

// silent is a watcher that has nothing to tell.
type silent struct {
	natsjs.KeyWatcher
	updates chan natsjs.KeyValueEntry
}

func newSilent() *silent {
	w := &silent{updates: make(chan natsjs.KeyValueEntry)}
	close(w.updates)
	return w
}

func (w *silent) Updates() <-chan natsjs.KeyValueEntry { return w.updates }

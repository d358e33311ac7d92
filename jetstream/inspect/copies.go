package inspect

import (
	"context"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/copies"
)

// CopiesSubject is the subject that [Copies] publishes to.
func CopiesSubject(m subject.Map) (string, error) { return copies.Subject(m) }

// Copies counts the streams that store a task of this mesh. It stores nothing. More than one
// stream answers where a hub and a leaf node have JetStream domains of their own, both with the
// mesh's streams, and share the subjects of an account: then each task is stored in both, and done
// in both. A stream that answers after more than a quarter of a second is not counted.
func Copies(ctx context.Context, nc *nats.Conn, m subject.Map) (int, error) {
	to, err := CopiesSubject(m)
	if err != nil {
		return 0, err
	}
	return copies.Count(ctx, nc, to)
}

// Elsewhere reports whether another JetStream domain than that of js stores the tasks of this mesh. It
// stores nothing, and returns false if it cannot find out.
func Elsewhere(ctx context.Context, js natsjs.JetStream, m subject.Map) bool {
	to, err := CopiesSubject(m)
	return err == nil && copies.Elsewhere(ctx, js, to)
}

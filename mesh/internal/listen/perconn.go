package listen

import (
	"runtime"
	"sync"
	"weak"

	"github.com/nats-io/nats.go"
)

// PerConn holds one T for each connection: nodes that use a connection one after the other, or
// together, share its subscription, which lasts as long as the connection. It keeps neither the
// connection nor the T alive. Its methods may be called from many goroutines.
type PerConn[T any] struct {
	mu    sync.Mutex
	known map[weak.Pointer[nats.Conn]]weak.Pointer[T]
}

// Of returns the T of a connection, which it makes with the first call.
func (p *PerConn[T]) Of(conn *nats.Conn, make func(*nats.Conn) *T) *T {
	key := weak.Make(conn)
	p.mu.Lock()
	defer p.mu.Unlock()
	known, there := p.known[key]
	if v := known.Value(); v != nil {
		return v
	}
	if p.known == nil {
		p.known = map[weak.Pointer[nats.Conn]]weak.Pointer[T]{}
	}
	if !there {
		runtime.AddCleanup(conn, p.forget, key)
	}
	v := make(conn)
	p.known[key] = weak.Make(v)
	return v
}

func (p *PerConn[T]) forget(key weak.Pointer[nats.Conn]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, key)
}

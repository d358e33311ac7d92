package denial

import (
	"time"

	"github.com/nats-io/nats.go"
)

// Parse is parse.
func Parse(err error) Denial { return parse(err) }

// Age makes all denials that were heard older.
func Age(nc *nats.Conn, by time.Duration) {
	e := earOf(nc)
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.denials {
		e.denials[i].heard = e.denials[i].heard.Add(-by)
	}
}

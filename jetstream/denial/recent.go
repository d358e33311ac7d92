package denial

import (
	"maps"
	"sync"
	"time"
)

// Recent remembers denials for a minute, by names that the caller chooses, so that a denied
// request is not repeated all the time: a user's permissions change rarely. The zero value is
// ready for use, by several goroutines.
type Recent struct {
	mu sync.Mutex
	at map[string]time.Time
}

// recent is how long a denial is remembered.
const recent = time.Minute

// Has reports whether something was denied within the last minute.
func (r *Recent) Has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, denied := r.at[name]
	return denied && time.Since(at) < recent
}

// Add remembers that something was denied now.
func (r *Recent) Add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.at, func(_ string, at time.Time) bool { return time.Since(at) >= recent })
	if r.at == nil {
		r.at = map[string]time.Time{}
	}
	r.at[name] = time.Now()
}

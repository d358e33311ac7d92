package mesh

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A store that does not answer is logged once a second, also after the clock was set back.
func TestAFailingStoreIsLoggedOnceASecond(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ago  time.Duration
		want int
	}{"just now": {0, 0}, "two seconds ago": {2 * time.Second, 1}} {
		log := &natstest.Buffer{}
		s := &records{log: slog.New(slog.NewTextHandler(log, nil))}
		logged := natstest.Suspended(time.Now().Add(-test.ago), time.Hour) // the clock was set back since
		s.loggedAt.Store(&logged)
		s.failed(errors.New("away"))
		if got := strings.Count(log.String(), "\n"); got != test.want {
			t.Errorf("logged %s: %d lines more, want %d", name, got, test.want)
		}
	}
}

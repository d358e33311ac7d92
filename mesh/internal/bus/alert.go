package bus

import (
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// limiter allows one alert a second for each agent and error code and counts the
// rest, so that a flood of bad messages does not flood the bus.
type limiter struct {
	mu   sync.Mutex
	seen map[string]*alertCount
}

type alertCount struct {
	last       time.Time
	suppressed int
}

const maxAlertKinds = 1024

func (l *limiter) allow(kind string, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.seen[kind]
	if c == nil {
		if len(l.seen) >= maxAlertKinds || l.seen == nil {
			l.seen = map[string]*alertCount{}
		}
		c = &alertCount{}
		l.seen[kind] = c
	}
	if now.Sub(c.last) < time.Second {
		c.suppressed++
		return 0, false
	}
	suppressed, c.last, c.suppressed = c.suppressed, now, 0
	return suppressed, true
}

// Alert publishes on bus.mesh.alert that an envelope was refused for a reason that may
// be an attack or a wrong configuration of keys.
func (a *Agent) Alert(env *envelope.Envelope, problem *envelope.Error) {
	suppressed, ok := a.Bus.alerts.allow(a.Entity+" "+string(problem.Code), time.Now())
	if !ok {
		return
	}
	a.Log.Warn("envelope refused", "id", env.ID, "corr", env.Corr, "intent", env.Intent, "from", env.From, "to", env.To, "type", string(env.Type), "priority", string(env.Priority), "code", string(problem.Code))
	a.raise(env, alert{Code: problem.Code, Message: problem.Message, Suppressed: suppressed})
}

// AlertDead publishes an alert about a dead letter on bus.mesh.alert.
func (a *Agent) AlertDead(env *envelope.Envelope, problem *envelope.Error, cause string, attempts int) {
	a.Log.Warn("dead letter", "id", env.ID, "corr", env.Corr, "intent", env.Intent, "from", env.From, "to", env.To, "code", string(problem.Code), "cause", cause, "attempts", attempts)
	a.raise(env, alert{Code: problem.Code, Message: cause, Dead: true, Attempts: &attempts})
}

// alert is the payload of an alert.
type alert struct {
	Code       envelope.Code `json:"code"`
	Message    string        `json:"message"`
	ID         string        `json:"id"`
	From       string        `json:"sender"`
	Intent     string        `json:"intent"`
	Instance   string        `json:"instance"`
	Suppressed int           `json:"suppressed,omitempty"`
	Dead       bool          `json:"dead_letter,omitempty"`
	Attempts   *int          `json:"attempts,omitempty"` // of a dead letter; it may be 0
}

// raise publishes an alert about an envelope.
func (a *Agent) raise(env *envelope.Envelope, what alert) {
	what.ID, what.From, what.Intent, what.Instance = clip.Text(env.ID, 128), clip.Text(env.From, 128), clip.Text(env.Intent, 128), a.Instance
	a.publish(nil, TopicAlert, intents.AlertRaised, env.Corr, wire.MustJSON(what), nil)
}

package holders

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/internal/probe"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// None stands in place of a holder: the worker that named itself has delegated the task, and the
// receiver may name itself.
const None = "-"

// Holder is a worker that has named itself.
type Holder struct {
	ping   string        // the ping subject that only this worker answers; "": unknown
	back   time.Duration // see [probe.Prober.BackAfter]
	server string        // the id of the server that it is connected to
}

// Of reads the message of a holder. It returns false for any other message, and the
// zero holder for a malformed one.
func Of(msg *nats.Msg) (h Holder, is bool) {
	if len(msg.Data) > 0 || len(msg.Header) == 0 || len(msg.Header[wire.HeaderHolder]) == 0 {
		return Holder{}, false
	}
	f := strings.Split(msg.Header.Get(wire.HeaderHolder), " ")
	if len(f) != 4 || subject.ValidateEntity(f[0]) != nil || !probe.InstanceID.RE().MatchString(f[1]) {
		return Holder{}, true
	}
	ms, err := strconv.ParseUint(f[2], 10, 31)
	if err != nil {
		return Holder{}, true
	}
	h.back, h.server = min(time.Duration(ms)*time.Millisecond, probe.MaxBack), f[3]
	h.ping, _ = probe.Subject(f[0], f[1])
	return h, true
}

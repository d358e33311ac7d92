package holders

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Holder is a worker that has named itself.
type Holder struct {
	ping   string        // the ping subject that only this worker answers; "": unknown
	back   time.Duration // see Node.backAfter
	server string        // the id of the server that it is connected to
}

// MaxBack bounds the reconnect time that a worker may state.
const MaxBack = 10 * time.Second

// InstanceID matches the instance ids of workers.
var InstanceID = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)

// Of reads the message of a holder. It returns false for any other message, and the
// zero holder for a malformed one.
func Of(msg *nats.Msg) (h Holder, is bool) {
	if len(msg.Data) > 0 || len(msg.Header) == 0 || len(msg.Header[wire.HeaderHolder]) == 0 {
		return Holder{}, false
	}
	f := strings.Split(msg.Header.Get(wire.HeaderHolder), " ")
	if len(f) != 4 || subject.ValidateEntity(f[0]) != nil || !InstanceID.MatchString(f[1]) {
		return Holder{}, true
	}
	ms, err := strconv.ParseUint(f[2], 10, 31)
	if err != nil {
		return Holder{}, true
	}
	h.back, h.server = min(time.Duration(ms)*time.Millisecond, MaxBack), f[3]
	h.ping, _ = micro.ControlSubject(micro.PingVerb, subject.ServiceName(f[0]), f[1])
	return h, true
}

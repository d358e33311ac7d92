package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
)

// Prefix is the prefix of the JetStream API's subjects, with the final dot.
func Prefix(js natsjs.JetStream) string {
	if p := KeyPrefix(js); p != "" {
		return p
	}
	return natsjs.DefaultAPIPrefix
}

// InfoOf returns a stream's configuration and state.
func InfoOf(ctx context.Context, js natsjs.JetStream, stream string) (info natsjs.StreamInfo, err error) {
	err = Request(ctx, js, "STREAM.INFO."+stream, nil, &info)
	return info, Explain(js.Conn(), err, "look at %s", stream)
}

// Purge says which messages of a stream are deleted.
type Purge struct {
	Filter string `json:"filter"`         // a subject, which may have wildcards
	Before uint64 `json:"seq,omitempty"`  // only those with a lower sequence; 0: all
	Keep   uint64 `json:"keep,omitempty"` // the number of newest messages that stay
}

// Do deletes the messages, and returns how many. Its error is that of [Request].
func (p Purge) Do(ctx context.Context, js natsjs.JetStream, stream string) (purged uint64, err error) {
	var answer struct {
		Purged uint64 `json:"purged"`
	}
	err = Request(ctx, js, "STREAM.PURGE."+stream, p, &answer)
	return answer.Purged, err
}

// Request sends a request to the JetStream API and decodes its answer, unless answer is
// nil. If the API refuses, the error is a *natsjs.APIError.
func Request(ctx context.Context, js natsjs.JetStream, subject string, body, answer any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	msg, err := Exchange(ctx, js.Conn(), &nats.Msg{Subject: Prefix(js) + subject, Data: data})
	if err != nil {
		return err
	}
	var failed struct {
		Error   *natsjs.APIError `json:"error"`
		Cluster *clusterInfo     `json:"cluster"`
	}
	if err := json.Unmarshal(msg.Data, &failed); err != nil {
		return err
	}
	if failed.Error != nil {
		return failed.Error
	}
	if strings.HasPrefix(subject, "STREAM.INFO.") && failed.Cluster.leaderless() {
		return errNoLeader
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(msg.Data, answer)
}

// PlainHeader copies headers without the Nats- ones, which the server would act on. It keeps those
// of errors (NATS micro), which only clients read.
func PlainHeader(h nats.Header) nats.Header {
	out := make(nats.Header, len(h)+4)
	for k, v := range h {
		if !strings.HasPrefix(k, "Nats-") || k == micro.ErrorHeader || k == micro.ErrorCodeHeader {
			out[k] = v
		}
	}
	return out
}

// KeyPrefix is the prefix that nats.go puts before the subject of a bucket's key if the
// JetStream API has its own prefix, as in another domain.
func KeyPrefix(js natsjs.JetStream) string {
	o := js.Options()
	switch {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "" && o.APIPrefix != natsjs.DefaultAPIPrefix:
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return ""
}

// Subjects returns how many messages a stream has on each subject that
// matches a filter.
func Subjects(ctx context.Context, js natsjs.JetStream, stream, filter string) (map[string]int, error) {
	all, _, err := SubjectsAt(ctx, js, stream, filter)
	return all, Explain(js.Conn(), err, "look at %s", stream)
}

// SubjectsAt is like [Subjects], and also returns the server's time when it began to answer. Its
// errors are not explained.
func SubjectsAt(ctx context.Context, js natsjs.JetStream, stream, filter string) (all map[string]int, at time.Time, err error) {
	all = map[string]int{}
	for offset := 0; ; {
		body, err := json.Marshal(map[string]any{"subjects_filter": filter, "offset": offset})
		if err != nil {
			return nil, at, err
		}
		var page struct {
			Error   *natsjs.APIError `json:"error"`
			Total   int              `json:"total"`
			TS      time.Time        `json:"ts"`
			Cluster *clusterInfo     `json:"cluster"`
			State   struct {
				Subjects map[string]int `json:"subjects"`
			} `json:"state"`
		}
		answer, err := Exchange(ctx, js.Conn(), &nats.Msg{Subject: Prefix(js) + "STREAM.INFO." + stream, Data: body})
		if err == nil {
			err = json.Unmarshal(answer.Data, &page) // Request would decode some MiB twice
		}
		if err == nil && page.Error != nil {
			err = page.Error
		}
		if err == nil && page.Cluster.leaderless() {
			err = errNoLeader
		}
		if err != nil {
			return nil, at, err
		}
		if at.IsZero() {
			at = page.TS
		}
		offset += len(page.State.Subjects)
		if len(all) == 0 {
			all = page.State.Subjects
		} else {
			maps.Copy(all, page.State.Subjects)
		}
		if len(page.State.Subjects) == 0 || offset >= page.Total {
			return all, at, nil
		}
	}
}

// clusterInfo is the part of a stream's info about its servers; nil: it has one server.
type clusterInfo struct {
	Leader string `json:"leader"`
}

func (c *clusterInfo) leaderless() bool { return c != nil && c.Leader == "" }

// errNoLeader: a replicated stream has no leader at the moment. Then the server that answers does
// not know what is stored, and reports an empty stream.
var errNoLeader = fmt.Errorf("%w: the stream has no leader", ErrUnavailable)

// RequestTimeout is the timeout of one request.
const RequestTimeout = 5 * time.Second

// OneRequest returns the context of one request. An answer can be lost with a connection
// or a leader; the timeout keeps the request from lasting as long as the task that it is
// for.
func OneRequest(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, RequestTimeout)
}

// Bounded adds a timeout to an operation of several requests if ctx has no deadline.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, RequestTimeout)
}

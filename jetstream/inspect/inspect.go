package inspect

import (
	"context"
	"slices"
	"sort"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Report is the result of [JetStream].
type Report struct {
	// Off says why this account may not use JetStream; the other fields are then empty. ""
	// if it may.
	Off string

	Account *natsjs.AccountInfo
	Streams []jetstream.Change // as [jetstream.Plan] has them
	Races   []Race
}

// A Race is a stream that acknowledges messages on subjects that carry requests: a
// requester gets either the stream's acknowledgement or the agent's answer, whichever is
// faster.
type Race struct {
	Stream   string
	Subjects []string // the subjects of the stream that capture requests
}

// JetStream examines the JetStream of one mesh. The report has the problems of JetStream; the
// error says why the examination failed.
func JetStream(ctx context.Context, js natsjs.JetStream, opts jetstream.Options) (Report, error) {
	info, err := api.Asking(ctx, js, `INFO"`, js.AccountInfo)
	if err = api.Explain(js.Conn(), err, "ask for the account's limits"); jetstream.Off(err) {
		return Report{Off: err.Error()}, nil
	} else if err != nil {
		return Report{}, err
	}
	r := Report{Account: info}
	if r.Streams, err = jetstream.Plan(ctx, js, opts); err != nil {
		return r, err
	}
	r.Races, err = races(ctx, js, opts.Map)
	return r, err
}

// races finds streams that acknowledge on subjects that carry requests.
func races(ctx context.Context, js natsjs.JetStream, m subject.Map) ([]Race, error) {
	lanes := append(m.AllLive(), m.AllAsk(), m.AllCtl(), m.AllBus())
	found := map[string][]string{}
	for _, lane := range lanes {
		list := js.ListStreams(ctx, natsjs.WithStreamListSubject(lane))
		for info := range list.Info() {
			if info.Config.NoAck {
				continue
			}
			for _, s := range info.Config.Subjects {
				if subject.Overlap(s, lane) && !slices.Contains(found[info.Config.Name], s) {
					found[info.Config.Name] = append(found[info.Config.Name], s)
				}
			}
		}
		if err := list.Err(); err != nil {
			return nil, api.Explain(js.Conn(), err, "list streams")
		}
	}
	var races []Race
	for name, subjects := range found {
		races = append(races, Race{name, subjects})
	}
	sort.Slice(races, func(i, j int) bool { return races[i].Stream < races[j].Stream })
	return races, nil
}

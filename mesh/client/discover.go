package client

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Instance is one worker of one agent, as it describes itself.
type Instance struct {
	Entity string       `json:"entity"`
	Info   micro.Info   `json:"info"`
	Stats  *micro.Stats `json:"stats,omitempty"`
}

// Discover lists the workers of this mesh that answer within wait; if entity is not empty, those
// of that entity. It returns early if no further answer arrives for a while, but not before the
// first answer of the entity.
func (c *Client) Discover(ctx context.Context, entity string, wait time.Duration) ([]Instance, error) {
	var infos, stats [][]byte
	var failed [2]error
	var both sync.WaitGroup
	both.Go(func() { infos, failed[0] = c.survey(ctx, micro.InfoVerb, "", entity, wait, nil) })
	both.Go(func() { stats, failed[1] = c.survey(ctx, micro.StatsVerb, "", entity, wait, nil) })
	both.Wait()
	if err := errors.Join(failed[:]...); err != nil {
		return nil, err
	}
	byID := map[string]*micro.Stats{}
	for _, raw := range stats {
		var s micro.Stats
		if json.Unmarshal(raw, &s) == nil && s.Type == micro.StatsResponseType {
			byID[s.ID] = &s
		}
	}
	return c.instances(infos, byID, entity), nil
}

// Workers lists the workers of one entity that answer within wait, without their
// stats. It asks only the services with the entity's name, so it needs only the
// permission to publish to $SRV.INFO.<name>, which package mesh/perms lists (Look).
func (c *Client) Workers(ctx context.Context, entity string, wait time.Duration) ([]Instance, error) {
	return c.WorkersUntil(ctx, entity, wait, nil)
}

// WorkersUntil is Workers that ends at the first worker for which enough returns true. If enough
// is nil, it does not end early.
func (c *Client) WorkersUntil(ctx context.Context, entity string, wait time.Duration, enough func(Instance) bool) ([]Instance, error) {
	var last func([]byte) bool
	if enough != nil {
		last = func(info []byte) bool { return slices.ContainsFunc(c.instances([][]byte{info}, nil, entity), enough) }
	}
	infos, err := c.survey(ctx, micro.InfoVerb, subject.ServiceName(entity), entity, wait, last)
	if err != nil {
		return nil, err
	}
	return c.instances(infos, nil, entity), nil
}

// instances returns the workers of this mesh among the services that have answered; if
// entity is not empty, only the workers of that entity.
func (c *Client) instances(infos [][]byte, stats map[string]*micro.Stats, entity string) []Instance {
	var out []Instance
	for _, raw := range infos {
		var info micro.Info
		if json.Unmarshal(raw, &info) != nil || info.Type != micro.InfoResponseType {
			continue
		}
		e := info.Metadata[wire.MetaEntity]
		if e == "" || info.Metadata[wire.MetaPrefix] != c.s.Prefix || entity != "" && e != entity {
			continue
		}
		out = append(out, Instance{Entity: e, Info: info, Stats: stats[info.ID]})
	}
	sorted.By(out, func(a, b Instance) int {
		return strings.Compare(a.Entity+" "+a.Info.ID, b.Entity+" "+b.Info.ID)
	})
	return out
}

// survey sends one micro request to all services, or to those with a name, and collects the
// answers. It waits for the first answer of the entity (of any service if entity is empty). Then
// it ends when no answer arrives for as long as patience says, or when last reports that no more
// are needed.
func (c *Client) survey(ctx context.Context, verb micro.Verb, name, entity string, wait time.Duration, last func(answer []byte) bool) ([][]byte, error) {
	to, err := micro.ControlSubject(verb, name, "")
	if err != nil {
		return nil, err
	}
	sub, err := c.s.Conn.SubscribeSync(jetstream.ReplyInbox(c.s.Conn))
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe()
	if err := c.s.Conn.PublishRequest(to, sub.Subject, nil); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var out [][]byte
	for began, gap := time.Now(), wait; ; {
		turn, stop := context.WithTimeout(ctx, gap)
		msg, err := sub.NextMsgWithContext(turn)
		stop()
		if err != nil {
			if len(out) == 0 && ctx.Err() == nil && turn.Err() == nil {
				return nil, err
			}
			return out, nil
		}
		if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
			return nil, nil
		}
		out = append(out, msg.Data)
		if last != nil && last(msg.Data) {
			return out, nil
		}
		if gap == wait && (entity == "" || c.isOf(msg.Data, entity)) {
			gap = patience(wait, time.Since(began))
		}
	}
}

// patience returns after how long without an answer a survey ends. It grows with the time that the
// first answer took: on a busy machine the others take longer, too.
func patience(wait, first time.Duration) time.Duration {
	return min(wait, max(300*time.Millisecond, 4*first))
}

// isOf reports whether an answer is from a worker of an entity of this mesh.
func (c *Client) isOf(answer []byte, entity string) bool {
	var s micro.ServiceIdentity
	return json.Unmarshal(answer, &s) == nil && s.Metadata[wire.MetaEntity] == entity && s.Metadata[wire.MetaPrefix] == c.s.Prefix
}

// Ping sends aee.status.ping to one worker of an entity and returns the time until its
// answer came.
func (c *Client) Ping(ctx context.Context, entity string) (time.Duration, error) {
	started := time.Now()
	_, err := c.Query(ctx, entity, intents.StatusPing, struct{}{}, nil)
	return time.Since(started), err
}

// PingInstance pings one worker of an entity over NATS micro; id is its instance id (see
// [Instance]). It returns the worker's answer and the time until it came. The answer is
// not signed.
func (c *Client) PingInstance(ctx context.Context, entity, id string) (micro.Ping, time.Duration, error) {
	var pong micro.Ping
	to, err := micro.ControlSubject(micro.PingVerb, subject.ServiceName(entity), id)
	if err != nil {
		return pong, 0, err
	}
	started := time.Now()
	msg, err := c.s.Conn.RequestWithContext(ctx, to, nil)
	took := time.Since(started)
	if errors.Is(err, nats.ErrNoResponders) {
		return pong, took, envelope.Errorf(envelope.CodeNoResponders, "no worker of %s is instance %s", entity, id)
	}
	if err != nil {
		return pong, took, err
	}
	if err := json.Unmarshal(msg.Data, &pong); err != nil || pong.Metadata[wire.MetaEntity] != entity || pong.ID != id {
		return pong, took, envelope.Errorf(envelope.CodeInvalidEnvelope, "the answer does not come from instance %s of %s", id, entity)
	}
	return pong, took, nil
}

// Query sends a task with one of the aee.* intents, or any other, and decodes
// the result's payload into out, unless that is nil.
func (c *Client) Query(ctx context.Context, entity, intent string, in, out any) (*envelope.Envelope, error) {
	return c.QueryWith(ctx, entity, intent, in, out, SendOptions{})
}

// QueryWith is Query with options.
func (c *Client) QueryWith(ctx context.Context, entity, intent string, in, out any, opts SendOptions) (*envelope.Envelope, error) {
	payload, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	reply, err := c.Send(ctx, envelope.New(envelope.TypeTask, c.cfg.Entity, entity, intent, payload), opts)
	if err != nil || out == nil {
		return reply, err
	}
	return reply, wire.ReadJSON(reply.Payload, out)
}

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/state"
)

// Points are the points at which faults strike a worker, in the order in which a task
// passes them.
var Points = []Point{
	Point(mesh.PointDelivered), Point(mesh.PointClaimed), Point(mesh.PointBeforeCommit), Point(mesh.PointAfterCommit),
	pointBeforeEffect, pointAfterEffect,
	Point(mesh.PointOffer), Point(mesh.PointVerified), Point(mesh.PointMoved),
	Point(mesh.PointBeforeTerminal), Point(mesh.PointAfterTerminal), Point(mesh.PointAnnounced), Point(mesh.PointReplied), Point(mesh.PointAcked),
	Point(mesh.PointRequeue),
}

// readyEarly is the word that a worker without a durable lane yet prints instead of
// "ready".
const readyEarly = "early"

// A child is the process of a worker or of the receiver.
type child struct {
	cfg   workerConfig
	conn  *nats.Conn
	js    natsjs.JetStream
	gates *gates
	out   *lines
}

// newChild reads what the soak tells a worker or a receiver, and connects. Like the aeemesh
// command, it waits for its server. When stdin closes, the soak was killed, and the child exits
// at once: it could not finish its tasks, because the servers exit, too.
func newChild(ctx context.Context, what, file string, stdin io.Reader, stdout io.Writer) (*child, error) {
	p := &child{out: &lines{w: stdout}}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &p.cfg)
	}
	if err != nil {
		return nil, err
	}
	p.gates = newGates(p.out)
	go func() {
		p.gates.listen(stdin)
		os.Exit(1)
	}()
	if p.conn, err = natsconn.Connect(ctx, natsconn.Config{URL: strings.Join(p.cfg.URLs, ","), Name: "soak " + what + " " + p.cfg.Name, Wait: -1, Options: dialing}); err != nil {
		return nil, err
	}
	p.js, err = jetstream.New(p.conn, "")
	return p, err
}

// work runs a worker of the soak's agents.
func work(ctx context.Context, file string, stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	me, err := newChild(ctx, "worker", file, stdin, stdout)
	if err != nil {
		return err
	}
	cfg, conn, js, g, out := me.cfg, me.conn, me.js, me.gates, me.out
	defer conn.Close()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	var once sync.Once
	owner := func(id string) { once.Do(func() { fmt.Fprintln(out, "owner", id) }) }
	all, err := cast(cfg, g, owner, log)
	if err != nil {
		return err
	}
	word := "ready"
	var waiting atomic.Int32
	waiting.Store(int32(len(all)))
	served := func() {
		if waiting.Add(-1) == 0 {
			fmt.Fprintln(out, word)
		}
	}
	var m subject.Map
	d := lane(js, m)
	d.Lease, d.Create, d.Sweep = cfg.Lease, true, 2*cfg.Lease
	d.Platform, d.Operators = cfg.System, []string{sender}
	if cfg.Remote != "" {
		d.Remotes = remotes(cfg)
	}
	d.Observe = func(p mesh.Point, run state.ID) { g.at(ctx, Point(p), run.Run) }
	breakPromise(cfg.Break, d, js)
	looking, done := context.WithTimeout(ctx, 2*time.Second)
	lacks := jetstream.LaneLacks(looking, js, m, false)
	done()
	if lacks != nil {
		log.Warn("the durable lane is waited for", "err", lacks)
		word = readyEarly
		await := jetstream.AwaitLane(ctx, js, m, false, cfg.Lease, lacks, nil)
		d.Ready, d.NotReady = await.Ready(), await.Lacks
	}
	signer, verifier, err := keys(cfg.System)
	if err != nil {
		return err
	}
	node, err := mesh.New(conn, mesh.Config{Entity: Entity, Heartbeat: -1, TaskEvents: mesh.EventsFailures, Quotas: mesh.Quotas{UnknownRate: -1}, Logger: log,
		Durable: d, Signer: signer, Verifier: verifier})
	if err != nil {
		return err
	}
	return together(len(all), func(i int) error {
		defer cancel() // if one agent ends, all end
		return all[i].serve(ctx, node, served)
	})
}

// keys returns the keys of a system's workers. They are the same in every soak, from a
// fixed seed: a soak has no secrets. The second system trusts the first one's key, but
// not the other way round.
func keys(system string) (*sign.Signer, sign.Verifier, error) {
	signer, err := sign.NewSigner("soak", sign.Ed25519, bytes.Repeat([]byte("soak"), 8))
	ring := &sign.Ring{}
	if err == nil {
		err = ring.Put(sign.Local, signer.Key(entities...))
	}
	if err == nil && system == secondSystem {
		if signer, err = sign.NewSigner("soak-second", sign.Ed25519, bytes.Repeat([]byte("away"), 8)); err == nil {
			err = ring.Put(sign.Local, signer.Key(entities...))
		}
	}
	return signer, sign.Verifier{Ring: ring}, err
}

// lane returns what a node needs for the durable lane.
func lane(js natsjs.JetStream, m subject.Map) *mesh.Durable {
	s := jetstream.Open(jetstream.Gather(js), m)
	return &mesh.Durable{Queue: s.Queue, Replies: s.Replies, Dead: s.Dead, States: s.States, Clock: s.Clock, Inbox: s.Inbox}
}

// lines writes whole lines from several goroutines.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

// Write writes one line.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

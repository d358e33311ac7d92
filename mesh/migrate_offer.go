package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// offerWait is how long a worker may take to accept a run.
const offerWait = 5 * time.Second

// offerPayload is an offer of a run; without a token it asks which worker would accept
// one.
type offerPayload struct {
	From     string `json:"from"`               // the instance that asks
	To       string `json:"to,omitempty"`       // the instance that is asked; "": any with room
	Run      string `json:"run,omitempty"`      //
	Revision uint64 `json:"revision,omitempty"` // of the captured checkpoint
	Token    string `json:"token,omitempty"`    // the migration token
	Ack      string `json:"ack,omitempty"`      // where the message that carries the run is acknowledged
}

// offerAnswer is the other worker's answer.
type offerAnswer struct {
	Instance string `json:"instance"`
	Epoch    uint64 `json:"epoch,omitempty"` // of its claim
}

// offer offers a run to another worker. The transfer is final once that worker has
// claimed the run in its record; it then goes on with the run's message.
func (tr *transfers) offer(ctx context.Context, r *Run) {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	m := r.cp.Load().Mesh.Migration
	to := m.To
	var err error
	if to == intents.MigrateAny {
		to, err = tr.findWorker(ctx)
	}
	var answer offerAnswer
	if err == nil {
		answer, err = tr.offerTo(ctx, r, to)
	}
	if err != nil {
		tr.abortTransfer(r, err)
		return
	}
	tr.host.log.Info("run moved", "run", r.id.Run, "to", answer.Instance, "epoch", answer.Epoch)
	r.mu.Lock()
	r.stop(ErrLost)
	r.mu.Unlock()
	tr.unlist(r)
	tr.dropHold(r.hold)
}

// findWorker asks for a worker that has room.
func (tr *transfers) findWorker(ctx context.Context) (string, error) {
	answer, err := tr.ask(ctx, offerPayload{From: tr.host.id})
	if err != nil {
		return "", fmt.Errorf("find a worker: %w", err)
	}
	return answer.Instance, nil
}

// offerTo offers the run to one worker.
func (tr *transfers) offerTo(ctx context.Context, r *Run, to string) (offerAnswer, error) {
	if to == tr.host.id {
		return offerAnswer{}, errors.New("the run is there already")
	}
	token, err := tr.issue(r, to)
	if err != nil {
		return offerAnswer{}, err
	}
	r.observe(PointOffer)
	answer, err := tr.ask(ctx, offerPayload{
		From: tr.host.id, To: to, Run: r.id.Run, Revision: r.rev, Token: token, Ack: r.hold.AckSubject,
	})
	if err != nil {
		return offerAnswer{}, fmt.Errorf("offer the run: %w", err)
	}
	return answer, nil
}

// ask sends an offer to the entity's workers. The addressed one answers.
func (tr *transfers) ask(ctx context.Context, p offerPayload) (answer offerAnswer, err error) {
	h := tr.host
	e := envelope.New(envelope.TypeTask, h.Entity, h.Entity, intents.TaskOffer, wire.MustJSON(p))
	e.Priority = envelope.PriorityUrgent
	if err := h.sign(e); err != nil {
		return answer, err
	}
	reply, err := h.node.sender.RequestControl(ctx, e, offerWait)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		if p.To == "" {
			return answer, envelope.Errorf(envelope.CodeUnavailable, "no other worker of %s answers that it has room", h.Entity)
		}
		return answer, envelope.Errorf(envelope.CodeUnavailable, "worker %s of %s does not answer", clip.Text(p.To, 128), h.Entity)
	case err != nil:
		return answer, err
	case reply.Type == envelope.TypeError:
		return answer, envelope.ErrorOf(reply)
	}
	return answer, json.Unmarshal(reply.Payload, &answer)
}

// issue signs the migration token for the captured run. A worker without a key makes
// one for this token and writes its public part into the run's record: that is as
// trustworthy as the record, and enough where signatures are not required.
func (tr *transfers) issue(r *Run, target string) (string, error) {
	signer, err := tr.tokenSigner()
	if err != nil {
		return "", err
	}
	if signer == nil {
		var key sign.Key
		if signer, key, err = sign.NewKey("move-"+r.cp.Load().Mesh.Migration.ID, sign.Ed25519, tr.host.Entity); err != nil {
			return "", err
		}
		rec, err := key.Record()
		if err != nil {
			return "", err
		}
		if err := tr.advance(r, state.PhaseCaptured, func(c *state.Checkpoint) error { c.Mesh.Migration.Key = rec.Public; return nil }); err != nil {
			return "", err
		}
	}
	c := r.cp.Load()
	now := tr.clock.now()
	return transfer.Grant{
		ID: c.Mesh.Migration.ID, Issuer: tr.host.Entity, Source: c.Doc.Provenance.SourcePlatform, Target: target,
		AgentID: c.Doc.AgentID, RunID: c.Doc.RunID, StateID: c.Doc.StateID, Checksum: c.Doc.Provenance.Checksum,
		Issued: now, Expires: now.Add(moveTimeout),
	}.Sign(signer)
}

// tokenSigner returns the agent's key pair, nil if it has none. A shared secret cannot
// sign tokens.
func (tr *transfers) tokenSigner() (*sign.Signer, error) {
	s := tr.host.Signer
	if s != nil && s.Alg() != sign.Ed25519 {
		return nil, fmt.Errorf("key %s: a migration token is signed with an %s key", s, sign.Ed25519)
	}
	return s, nil
}

// offered accepts or refuses a run that another worker offers to this instance. To a
// search for a worker with room (an offer without To) it answers if this worker has room.
// It blocks on the store, so it must not run on the goroutines of control messages.
func (tr *transfers) offered(t *Task) {
	h := tr.host
	var p offerPayload
	if err := json.Unmarshal(t.Envelope.Payload, &p); err != nil || p.From == h.id || t.Envelope.From != h.Entity {
		return
	}
	switch {
	case p.To == "":
		if tr.lane.roomForRun() {
			h.succeed(t, wire.MustJSON(offerAnswer{Instance: h.id}))
		}
		return
	case p.To != h.id:
		return
	}
	r, err := tr.acceptOffer(p)
	if err != nil {
		h.log.Warn("offered run refused", "run", p.Run, "from", p.From, "err", err)
		h.fail(t, offerError(err))
		return
	}
	defer r.tally.add(-1) // see hold
	h.succeed(t, wire.MustJSON(offerAnswer{Instance: h.id, Epoch: r.Epoch()}))
	tr.lane.resume(r)
}

// offerError returns the error that the other worker may read.
func offerError(err error) error {
	e := transfer.NewError(err)
	if e.Code == transfer.CodeInternal {
		return err
	}
	return envelope.Errorf(envelope.CodeDenied, "%s: %s", e.Code, e.Message).WithCause(err)
}

// acceptOffer verifies the offer, in the order of docs/migration.md, and claims the
// run.
func (tr *transfers) acceptOffer(p offerPayload) (*Run, error) {
	if !tr.lane.roomForRun() {
		return nil, busy(tr.host.Entity)
	}
	ctx, cancel := context.WithTimeout(tr.ctx, storeTimeout)
	defer cancel()
	id := state.ID{Entity: tr.host.Entity, Run: p.Run}
	rec, err := tr.cfg.States.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	c, err := tr.records.read(rec)
	if err != nil {
		return nil, err
	}
	if err := tr.verifyOffer(p, rec, c); err != nil {
		return nil, err
	}
	tr.cfg.observe(PointVerified, id)
	delivery, err := tr.cfg.Queue.Adopt(tr.host.Entity, p.Ack)
	if err != nil {
		return nil, err
	}
	hold := tr.hold(delivery)
	_ = hold.InProgress()
	run.Accept(c, tr.host.id, hold.Seq, tr.clock.now())
	rev, _, err := tr.records.put(ctx, id, rec.Revision, c)
	if err != nil {
		tr.dropHold(hold)
		return nil, fmt.Errorf("claim run %s: %w", p.Run, err)
	}
	tr.cfg.observe(PointMoved, id)
	r, err := tr.runOf(c, rev, hold)
	if err != nil {
		tr.dropHold(hold)
	}
	return r, err
}

// verifyOffer checks that the offer and its token belong to exactly this checkpoint of
// the run's record.
func (tr *transfers) verifyOffer(p offerPayload, rec state.Record, c *state.Checkpoint) error {
	m := c.Mesh.Migration
	if rec.Revision != p.Revision || !run.Offered(c) {
		return fmt.Errorf("%w: the run has changed meanwhile", transfer.ErrTokenState)
	}
	g, err := transfer.VerifyToken(tr.moveKeys(m), p.Token, tr.host.id, tr.clock.now())
	if err != nil {
		return err
	}
	if g.ID != m.ID || g.Issuer != tr.host.Entity {
		return fmt.Errorf("%w: the token belongs to another transfer", transfer.ErrTokenState)
	}
	if err := g.Covers(c.Doc.Provenance.SourcePlatform, c.Doc.AgentID, c.Doc.RunID, c.Doc.StateID, c.Doc.Provenance.Checksum); err != nil {
		return err
	}
	if c.Doc.AgentID != state.New(tr.host.Entity, "", tr.host.AgentID).Doc.AgentID {
		return fmt.Errorf("%w: %s", transfer.ErrUnknownAgent, clip.Text(c.Doc.AgentID, 128))
	}
	return nil
}

// moveKeys returns the keys that may sign a token within the mesh: the trusted keys
// and, unless signatures are required, the key that the source wrote into the run's
// record.
func (tr *transfers) moveKeys(m *state.Migration) transfer.Keys {
	v := tr.host.node.cfg.Verifier
	keys := oneKey{ring: v.Ring}
	if m.Key != "" && v.Mode != sign.Required {
		rec := sign.Record{KID: "move-" + m.ID, Alg: sign.Ed25519, Public: m.Key, From: []string{tr.host.Entity}}
		if key, err := rec.Key(); err == nil {
			keys.own = &key
		}
	}
	return keys
}

// oneKey is a key ring with one more key.
type oneKey struct {
	ring *sign.Ring
	own  *sign.Key
}

// Lookup finds a key, see [transfer.Keys].
func (k oneKey) Lookup(kid string) (sign.Key, bool) {
	if k.own != nil && kid == k.own.KID {
		return *k.own, true
	}
	if k.ring == nil {
		return sign.Key{}, false
	}
	return k.ring.Lookup(kid)
}

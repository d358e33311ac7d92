package migration

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
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
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
func (m *Mover) offer(ctx context.Context, r *Run) {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	to := r.migration().To
	var err error
	if to == intents.MigrateAny {
		to, err = m.findWorker(ctx)
	}
	var answer offerAnswer
	if err == nil {
		answer, err = m.offerTo(ctx, r, to)
	}
	if err != nil {
		m.abort(r, err)
		return
	}
	m.cfg.Log.Info("run moved", "run", r.id(), "to", answer.Instance, "epoch", answer.Epoch)
	r.Moved()
}

// findWorker asks for a worker that has room.
func (m *Mover) findWorker(ctx context.Context) (string, error) {
	answer, err := m.ask(ctx, offerPayload{From: m.cfg.Worker})
	if err != nil {
		return "", fmt.Errorf("find a worker: %w", err)
	}
	return answer.Instance, nil
}

// offerTo offers the run to one worker.
func (m *Mover) offerTo(ctx context.Context, r *Run, to string) (offerAnswer, error) {
	if to == m.cfg.Worker {
		return offerAnswer{}, run.ErrThere
	}
	token, err := m.issue(r, to)
	if err != nil {
		return offerAnswer{}, err
	}
	r.Observe(PointOffer)
	c, rev := r.Checkpoint()
	answer, err := m.ask(ctx, offerPayload{
		From: m.cfg.Worker, To: to, Run: c.Doc.RunID, Revision: rev, Token: token, Ack: r.Ack,
	})
	if err != nil {
		return offerAnswer{}, fmt.Errorf("offer the run: %w", err)
	}
	return answer, nil
}

// ask sends an offer to the entity's workers. The addressed one answers.
func (m *Mover) ask(ctx context.Context, p offerPayload) (answer offerAnswer, err error) {
	e := envelope.New(envelope.TypeTask, m.cfg.Entity, m.cfg.Entity, intents.TaskOffer, wire.MustJSON(p))
	e.Priority = envelope.PriorityUrgent
	reply, err := m.host.Ask(ctx, e, offerWait)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		if p.To == "" {
			return answer, envelope.Errorf(envelope.CodeUnavailable, "no other worker of %s answers that it has room", m.cfg.Entity)
		}
		return answer, envelope.Errorf(envelope.CodeUnavailable, "worker %s of %s does not answer", clip.Text(p.To, 128), m.cfg.Entity)
	case err != nil:
		return answer, err
	case reply.Type == envelope.TypeError:
		return answer, envelope.ErrorOf(reply)
	}
	return answer, wire.ReadJSON(reply.Payload, &answer)
}

// issue signs the migration token for the captured run. A worker without a key makes
// one for this token and writes its public part into the run's record: that is as
// trustworthy as the record, and enough where signatures are not required.
func (m *Mover) issue(r *Run, target string) (string, error) {
	signer, err := m.tokenSigner()
	if err != nil {
		return "", err
	}
	if signer == nil {
		var key sign.Key
		if signer, key, err = sign.NewKey("move-"+r.migration().ID, sign.Ed25519, m.cfg.Entity); err != nil {
			return "", err
		}
		rec, err := key.Record()
		if err != nil {
			return "", err
		}
		if err := r.Advance(state.PhaseCaptured, func(c *state.Checkpoint) error { c.Mesh.Migration.Key = rec.Public; return nil }); err != nil {
			return "", err
		}
	}
	c, _ := r.Checkpoint()
	now := m.host.Now()
	return transfer.Grant{
		ID: c.Mesh.Migration.ID, Issuer: m.cfg.Entity, Source: c.Doc.Provenance.SourcePlatform, Target: target,
		AgentID: c.Doc.AgentID, RunID: c.Doc.RunID, StateID: c.Doc.StateID, Checksum: c.Doc.Provenance.Checksum,
		Issued: now, Expires: now.Add(moveTimeout),
	}.Sign(signer)
}

// tokenSigner returns the agent's key pair, nil if it has none that is valid. A shared secret cannot
// sign tokens.
func (m *Mover) tokenSigner() (*sign.Signer, error) {
	s := m.cfg.Signer
	if s == nil || s.Waits() {
		return nil, nil
	}
	if s.Alg() != sign.Ed25519 {
		return nil, fmt.Errorf("key %s: a migration token is signed with an %s key", s, sign.Ed25519)
	}
	return s, nil
}

// Offered handles the task by which another worker of the agent offers a run: it calls
// accept or refuse if the offer is for this worker. It accepts a search for a worker with
// room (an offer without To) if this worker has room. Offered blocks on the store.
func (m *Mover) Offered(ctx context.Context, task *envelope.Envelope, accept func(payload json.RawMessage), refuse func(error)) {
	var p offerPayload
	if err := wire.ReadJSON(task.Payload, &p); err != nil || p.From == m.cfg.Worker || task.From != m.cfg.Entity {
		return
	}
	switch {
	case p.To == "":
		if m.host.Room() == nil {
			accept(wire.MustJSON(offerAnswer{Instance: m.cfg.Worker}))
		}
		return
	case p.To != m.cfg.Worker:
		return
	}
	err := m.acceptOffer(ctx, p, func(epoch uint64) {
		accept(wire.MustJSON(offerAnswer{Instance: m.cfg.Worker, Epoch: epoch}))
	})
	if err != nil {
		m.cfg.Log.Warn("offered run refused", "run", p.Run, "from", p.From, "err", err)
		refuse(offerError(err))
	}
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
func (m *Mover) acceptOffer(ctx context.Context, p offerPayload, claimed func(epoch uint64)) error {
	if err := m.host.Room(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sched.StoreTimeout)
	defer cancel()
	rec, err := m.cfg.States.Get(ctx, state.ID{Entity: m.cfg.Entity, Run: p.Run})
	if err != nil {
		return err
	}
	c, err := m.cfg.Codec.Read(rec)
	if err != nil {
		return err
	}
	if err := m.verifyOffer(p, rec, c); err != nil {
		return err
	}
	return m.host.Claim(ctx, rec, c, p.Ack, claimed)
}

// verifyOffer checks that the offer and its token belong to exactly this checkpoint of
// the run's record.
func (m *Mover) verifyOffer(p offerPayload, rec state.Record, c *state.Checkpoint) error {
	if rec.Revision != p.Revision || !run.Offered(c) {
		return fmt.Errorf("%w: the run has changed meanwhile", transfer.ErrTokenState)
	}
	g, err := transfer.VerifyToken(m.moveKeys(c.Mesh.Migration), p.Token, m.cfg.Worker, m.host.Now())
	if err != nil {
		return err
	}
	if g.ID != c.Mesh.Migration.ID || g.Issuer != m.cfg.Entity {
		return fmt.Errorf("%w: the token belongs to another transfer", transfer.ErrTokenState)
	}
	if err := g.Covers(c.Doc.Provenance.SourcePlatform, c.Doc.AgentID, c.Doc.RunID, c.Doc.StateID, c.Doc.Provenance.Checksum); err != nil {
		return err
	}
	if c.Doc.AgentID != state.New(m.cfg.Entity, "", m.cfg.AgentID).Doc.AgentID {
		return fmt.Errorf("%w: %s", transfer.ErrUnknownAgent, clip.Text(c.Doc.AgentID, 128))
	}
	return nil
}

// moveKeys returns the keys that may sign a token within the mesh: the trusted keys
// and, unless signatures are required, the key that the source wrote into the run's
// record.
func (m *Mover) moveKeys(about *state.Migration) transfer.Keys {
	v := m.cfg.Answers.Verifier
	keys := oneKey{ring: v.Ring}
	if about.Key != "" && v.Mode != sign.Required {
		rec := sign.Record{KID: "move-" + about.ID, Alg: sign.Ed25519, Public: about.Key, From: []string{m.cfg.Entity}}
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

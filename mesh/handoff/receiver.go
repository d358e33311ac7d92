package handoff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// Defaults of [ReceiverConfig].
const (
	DefaultIdle = 30 * time.Second
	DefaultOpen = 16
)

// Stay is how long a staged handoff waits for the source's decision before it is refused.
const Stay = 20 * time.Minute

// holder is the entity under which the records of handoffs are kept. Their key
// depends on the token's id alone, so that a token is used once whatever
// happens to the agent's name.
const holder = "service.handoff"

// ReceiverConfig is what a [Receiver] needs. Fields without a default are
// required.
type ReceiverConfig struct {
	// Platform is this platform's name: tokens must be for it.
	Platform string
	// Keys verify tokens and requests.
	Keys transfer.Keys
	// Issuers are patterns of entities that may hand over any agent's runs, as
	// in [sign.MatchFrom]. Default none: the agent's own entity alone may.
	Issuers []string

	// Agent finds the entity that serves an agent here, by its document's
	// agent_id or the one that stands for the entity ([state.AgentID]), or fails with
	// [transfer.ErrUnknownAgent]. Where several entities say that they have the id, the
	// issuer of the handoff is meant, if it is one of them.
	Agent func(ctx context.Context, agentID, issuer string) (entity string, err error)

	// Fits reports, with [transfer.ErrUnknownAgent], that an entity does not go on with runs of
	// another version of its agent (agent_version). It is called when a run arrives, and again
	// before the run is accepted. nil: every version is accepted.
	Fits func(ctx context.Context, entity, version string) error

	// Handoffs keeps the records of handoffs, States the runs; they are not the
	// same store.
	Handoffs, States state.Store
	// Codec says how an entity's documents are kept at rest. Default: clear JSON.
	Codec func(entity string) state.Codec
	// Kick gives a run that is stored to the entity's workers. It may be called
	// more than once for one run.
	Kick func(ctx context.Context, c *state.Checkpoint) error
	// Replies are those of the runs here, for the source.
	Replies Replies
	// Forward gives a command about a run, an envelope, to its entity; nil:
	// commands are refused.
	Forward func(ctx context.Context, entity string, command []byte) (answer []byte, err error)

	// Now is the time, best by the clock of the server that stores the runs.
	// Default [time.Now].
	Now func(context.Context) time.Time

	// Idle is how long a sender may be silent in the middle of a stream, and how long
	// its first line may take. Default 30 seconds.
	Idle time.Duration
	// Open is how many streams with a valid token are read at once. Default 16.
	Open int
	// Pending is how many handoffs of one issuer are kept that were not accepted:
	// that are on their way, wait, or were refused. Share is how many bytes are kept
	// for one issuer. Beyond that its next handoff is refused ([ErrBusy]), until
	// records of earlier ones expire. Default 1000, and 24 MiB of the 64 that
	// jetstream.BucketHandoff has.
	Pending int
	Share   int64

	// Tidy, if set, takes away what Handoffs still keeps of documents that are gone.
	// [Receiver.Collect] calls it.
	Tidy func(ctx context.Context) error

	// Observe is called synchronously before and after each write: with the
	// phase that is written, and done false and then true.
	Observe func(ctx context.Context, phase state.Phase, done bool)
	// Logger gets one line a phase. Default discards.
	Logger *slog.Logger
}

// Replies reads the replies to a task, stored and new, in order.
type Replies interface {
	// Follow yields the replies whose number is above after, then new ones as
	// they come, until ctx ends. An error is the last thing that is yielded.
	Follow(ctx context.Context, entity, taskID string, after uint64) iter.Seq2[Reply, error]
}

// A Reply is one message of a task's reply stream.
type Reply struct {
	Seq    uint64              `json:"seq"`              // its number, from 1 without gaps; the terminal reply has the last
	Header map[string][]string `json:"header,omitempty"` // of the message
	Data   []byte              `json:"data"`             // the envelope; base64 on the wire
	Last   bool                `json:"last,omitempty"`   // the terminal reply
}

// A Receiver takes runs in. Its methods may be called from many goroutines,
// and by several receivers on the same stores.
type Receiver struct {
	cfg    ReceiverConfig
	open   chan struct{}
	shares shares
}

// NewReceiver makes a receiver. It does no I/O. All faults of the configuration
// are reported at once.
func NewReceiver(cfg ReceiverConfig) (*Receiver, error) {
	var bad []error
	for _, need := range []struct {
		what string
		is   bool
	}{
		{"Platform", cfg.Platform != ""}, {"Keys", cfg.Keys != nil}, {"Agent", cfg.Agent != nil}, {"Handoffs", cfg.Handoffs != nil},
		{"States", cfg.States != nil}, {"Kick", cfg.Kick != nil}, {"Replies", cfg.Replies != nil},
	} {
		if !need.is {
			bad = append(bad, fmt.Errorf("handoff receiver: %s is needed", need.what))
		}
	}
	for _, p := range cfg.Issuers {
		if err := sign.CheckPattern(p); err != nil {
			bad = append(bad, fmt.Errorf("handoff receiver: issuer %q: %w", p, err))
		}
	}
	if cfg.Codec == nil {
		cfg.Codec = func(string) state.Codec { return state.Codec{} }
	}
	if cfg.Now == nil {
		cfg.Now = func(context.Context) time.Time { return time.Now() }
	}
	if cfg.Idle <= 0 {
		cfg.Idle = DefaultIdle
	}
	if cfg.Open <= 0 {
		cfg.Open = DefaultOpen
	}
	if cfg.Pending <= 0 {
		cfg.Pending = DefaultPending
	}
	if cfg.Share <= 0 {
		cfg.Share = DefaultShare
	}
	if cfg.Observe == nil {
		cfg.Observe = func(context.Context, state.Phase, bool) {}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Receiver{cfg: cfg, open: make(chan struct{}, cfg.Open)}, errors.Join(bad...)
}

// A Status is how far a handoff has come here.
type Status struct {
	Handoff string      `json:"handoff"`
	Phase   state.Phase `json:"phase"`
	Run     string      `json:"run"`
	Entity  string      `json:"entity"`
	Reason  string      `json:"reason,omitempty"` // of a refusal

	Source string    `json:"source,omitempty"` // in lists: the platform that it came from
	Since  time.Time `json:"since,omitzero"`   // in lists: when the phase began

	Status aaif.RunStatus `json:"status,omitempty"` // in lists: of the run, once its workers have it
}

// Receive reads a streaming handoff to its end, and stages the run: it is kept,
// and waits for [Receiver.Commit]. On error nothing is left but, where the
// token was good, that it has been used.
func (r *Receiver) Receive(ctx context.Context, stream io.Reader) (Status, error) {
	open := false
	defer func() {
		if open {
			<-r.open
		}
	}()
	var h *record
	doc, _, err := transfer.Read(stream, transfer.Limits{}, func(in transfer.Init) (transfer.Grant, error) {
		source := ""
		if in.State.Provenance != nil {
			source = in.State.Provenance.SourcePlatform
		}
		grant, err := r.verify(ctx, in.Token, source, in.State)
		if err != nil {
			return grant, err
		}
		select { // only now: a stranger, who has no token, takes no place
		case r.open <- struct{}{}:
			open = true
		default:
			return grant, fmt.Errorf("%w: %d streams are open", ErrBusy, r.cfg.Open)
		}
		h, err = r.admit(ctx, grant, false)
		return grant, err
	})
	var c *state.Checkpoint
	if err == nil {
		c, err = state.Codec{MaxBytes: len(doc)}.Decode(doc)
	}
	if err == nil {
		err = r.stage(ctx, h, c)
	}
	if err != nil {
		if h != nil {
			err = r.giveUp(ctx, h, err)
		}
		return Status{}, err
	}
	return h.status(), nil
}

// Import receives a whole document, with its token in provenance, for example from a
// file. No source waits for an answer, so the run is staged and accepted at once. An import that
// was cut off before the run was given to the workers is finished by another one of the same document.
//
// key opens a file that its source has encrypted, and is used for nothing else: the run is
// stored as ReceiverConfig.Codec says. Without it the keys of that codec are tried.
func (r *Receiver) Import(ctx context.Context, doc []byte, key *state.Keyring) (Status, error) {
	token, text, err := transfer.TakeToken(doc)
	if err != nil {
		return Status{}, err
	}
	head, err := state.ReadHeader(text)
	if err != nil {
		return Status{}, err
	}
	codec := r.cfg.Codec(head.Entity)
	if key != nil {
		codec.Seal = key
	}
	c, err := OpenFile(text, codec)
	if err != nil {
		return Status{}, err
	}
	grant, err := r.verify(ctx, token, c.Doc.Provenance.SourcePlatform, &c.Doc)
	if err != nil {
		return Status{}, err
	}
	if err := grant.Covers(grant.Source, grant.AgentID, grant.RunID, grant.StateID, c.Doc.Provenance.Checksum); err != nil {
		return Status{}, err
	}
	h, err := r.begun(ctx, grant)
	if h == nil && err == nil {
		h, err = r.admit(ctx, grant, true)
	}
	if err != nil {
		return Status{}, err
	}
	if h.migration().Phase == state.PhaseReceiving {
		if err := r.stage(ctx, h, c); err != nil {
			return Status{}, r.giveUp(ctx, h, err)
		}
	}
	return r.Commit(ctx, grant.ID)
}

// begun returns the record of an import of the same document that was cut off before it was done;
// nil if there is none that this process can read.
func (r *Receiver) begun(ctx context.Context, g transfer.Grant) (*record, error) {
	rec, err := r.cfg.Handoffs.Get(ctx, key(g.ID))
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h, err := r.decode(rec)
	if err != nil {
		return nil, nil // admit finds the token used
	}
	m, parent := h.migration(), h.c.Mesh.Parent
	if m.Phase == state.PhaseRunning || m.Phase == state.PhaseRefused || m.Issuer != g.Issuer || h.c.Doc.RunID != g.RunID || parent == nil || parent.StateID != g.StateID {
		return nil, nil
	}
	h.own = true
	return h, nil
}

// verify judges a token by all that is known before the document is.
func (r *Receiver) verify(ctx context.Context, token, source string, s *aaif.State) (transfer.Grant, error) {
	grant, err := transfer.VerifyToken(r.cfg.Keys, token, r.cfg.Platform, r.cfg.Now(ctx))
	if err != nil {
		return transfer.Grant{}, err
	}
	return grant, grant.Covers(source, s.AgentID, s.RunID, s.StateID, grant.Checksum)
}

// admit uses the token up: of any number of streams that bring it, one makes
// the record. own is for what an operator of this platform brings.
func (r *Receiver) admit(ctx context.Context, g transfer.Grant, own bool) (*record, error) {
	entity, err := r.cfg.Agent(ctx, g.AgentID, g.Issuer)
	if err != nil {
		return nil, fmt.Errorf("agent_id %.50q: %w", g.AgentID, err)
	}
	if g.Issuer != entity && !matchAny(r.cfg.Issuers, g.Issuer) {
		return nil, fmt.Errorf("%w: %.80q may not transfer runs of %s", transfer.ErrTokenKey, g.Issuer, entity)
	}
	if err := r.vacant(ctx, state.ID{Entity: entity, Run: g.RunID}); err != nil {
		return nil, err
	}
	h := &record{id: g.ID, c: opening(entity, g), own: own}
	if err := r.write(ctx, h, state.PhaseReceiving, nil); err != nil {
		if errors.Is(err, state.ErrChanged) {
			err = fmt.Errorf("%w: %s", transfer.ErrTokenUsed, g.ID)
		}
		return nil, err
	}
	return h, nil
}

// vacant reports whether a run may come under a name: there is none
// ([transfer.ErrRunExists]). One that a receiver had prepared for a handoff of which
// there is no record any more was never accepted, and is taken away.
func (r *Receiver) vacant(ctx context.Context, id state.ID) error {
	rec, err := r.cfg.States.Get(ctx, id)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	exists := fmt.Errorf("%w: run %.50q of %s", transfer.ErrRunExists, id.Run, id.Entity)
	c, err := r.cfg.Codec(id.Entity).Read(rec)
	if err != nil || c.Doc.Status != aaif.RunMigrating || c.Mesh.Migration == nil || c.Mesh.Migration.Phase != state.PhaseStaged {
		return exists
	}
	switch _, err := r.load(ctx, c.Mesh.Migration.ID); {
	case errors.Is(err, ErrUnknown):
		return r.cfg.States.Delete(ctx, id)
	case err != nil:
		return err
	}
	return exists
}

// opening is what the record of a handoff begins with.
func opening(entity string, g transfer.Grant) *state.Checkpoint {
	return &state.Checkpoint{
		Doc: aaif.State{AgentID: g.AgentID, RunID: g.RunID, Status: aaif.RunMigrating},
		Mesh: state.Mesh{
			Format: state.Format, Entity: entity, Step: state.Step{Kind: state.StepImport, Name: g.Source},
			Migration: &state.Migration{ID: g.ID, Issuer: g.Issuer, Source: g.Source, Target: g.Target},
			Parent:    &state.Parent{Kind: "migration", Run: g.RunID, StateID: g.StateID, Platform: g.Source},
		},
	}
}

func matchAny(patterns []string, entity string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return sign.MatchFrom(p, entity) })
}

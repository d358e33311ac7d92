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
	DefaultIdle  = 30 * time.Second
	DefaultWhole = 10 * time.Minute
	DefaultOpen  = 16
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
	// Issuers are patterns, as in [sign.MatchFrom], of entities that may transfer any agent's
	// runs. Default none: only the agent's own entity may.
	Issuers []string

	// Agent finds the entity that serves an agent here, by its document's agent_id or by the
	// entity's default id ([state.AgentID]), or fails with [transfer.ErrUnknownAgent]. If several
	// entities have the id, it returns the issuer of the handoff, if that is one of them.
	Agent func(ctx context.Context, agentID, issuer string) (entity string, err error)

	// Fits reports, with [transfer.ErrUnknownAgent], that an entity does not go on with runs of
	// another version of its agent (agent_version). It is called when a run arrives, and again
	// before the run is accepted. nil: every version is accepted.
	Fits func(ctx context.Context, entity, version string) error

	// Handoffs keeps the records of handoffs, States the runs; they are not the
	// same store.
	Handoffs, States state.Store
	// Codec returns how an entity's documents are stored. Default: unencrypted JSON.
	Codec func(entity string) state.Codec
	// Kick queues a stored run for the entity's workers. It may be called more than once for one
	// run.
	Kick func(ctx context.Context, c *state.Checkpoint) error
	// MayKick returns an error if Kick could not queue the run, or if the entity's workers would not
	// accept its task: it is larger than a message here, for instance. It is called when a run
	// arrives. nil: every task is accepted.
	MayKick func(c *state.Checkpoint) error
	// Replies reads the replies of the runs here, for their sources.
	Replies Replies
	// Forward passes a command for a run, an envelope, to its entity. nil: commands are refused.
	Forward func(ctx context.Context, entity string, command []byte) (answer []byte, err error)

	// Now returns the time, preferably by the clock of the server that stores the runs. Default
	// [time.Now].
	Now func(context.Context) time.Time

	// Idle is how long a sender may be silent in the middle of a stream, and how long
	// its first line may take. Default 30 seconds.
	Idle time.Duration
	// Whole is how long a whole stream may take, over HTTP, so that none keeps its place by a
	// byte now and then. Default 10 minutes: a source of this program gives up after two, a
	// document of 64 MiB comes at a megabit a second, and it is less than [Stay].
	Whole time.Duration
	// Open is how many streams with a valid token are read at once. Default 16. If it is 4 or
	// more, one issuer has three quarters of them at most.
	Open int
	// Pending bounds the handoffs of one issuer that are not accepted: they arrive, wait, or were
	// refused. Share bounds the bytes of one issuer. Beyond either its next handoff is refused
	// ([ErrBusy]), until records of earlier ones expire. Default 1000, and 24 MiB of the 64 MiB of
	// jetstream.BucketHandoff.
	Pending int
	Share   int64

	// Tidy, if set, deletes the parts in Handoffs of documents that no longer exist.
	// [Receiver.Collect] calls it.
	Tidy func(ctx context.Context) error

	// Observe is called synchronously before each write, with done false, and after it, with done
	// true. phase is the written phase.
	Observe func(ctx context.Context, phase state.Phase, done bool)
	// Logger gets one line for each phase. By default they are discarded.
	Logger *slog.Logger
}

// Replies reads the replies to a task, stored and new, in order.
type Replies interface {
	// Follow yields the replies whose number is above after, then new ones as they arrive, until
	// ctx ends. After an error it yields nothing more.
	Follow(ctx context.Context, entity, taskID string, after uint64) iter.Seq2[Reply, error]
}

// A Reply is one message of a task's reply stream.
type Reply struct {
	Seq    uint64              `json:"seq"`              // its number, from 1 without gaps; the terminal reply has the last
	Header map[string][]string `json:"header,omitempty"` // of the message
	Data   []byte              `json:"data"`             // the envelope; base64 on the wire
	Last   bool                `json:"last,omitempty"`   // the terminal reply
}

// A Receiver receives runs. Its methods may be called from many goroutines, and several receivers
// may use the same stores.
type Receiver struct {
	cfg     ReceiverConfig
	open    places
	shares  shares
	orphans orphans
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
	if cfg.Whole <= 0 {
		cfg.Whole = DefaultWhole
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
	return &Receiver{cfg: cfg}, errors.Join(bad...)
}

// A Status is the progress of a handoff here.
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

// Receive reads a streaming handoff to its end, and stages the run: it is stored, and waits for
// [Receiver.Commit]. After an error nothing is stored, except that a valid token was used.
func (r *Receiver) Receive(ctx context.Context, stream io.Reader) (Status, error) {
	leave := func() {}
	defer func() { leave() }()
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
		// After the token was verified, so that a stream without one takes no place.
		if leave, err = r.open.take(grant.Issuer, r.cfg.Open); err != nil {
			return grant, err
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
// was interrupted before the run was started is finished by another import of the same document.
//
// key only opens a file that its source has encrypted; the run is stored as ReceiverConfig.Codec
// says. Without key the keys of that codec are tried.
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
	codec.Unchecked = false // the token is for a checksum
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
		switch err := r.stage(ctx, h, c); {
		case err == nil:
		case transfer.NewError(err).Code == transfer.CodeInternal: // the run is not at fault
			return Status{}, err
		default:
			return Status{}, r.giveUp(ctx, h, err)
		}
	}
	return r.Commit(ctx, grant.ID)
}

// begun returns the record of an import of the same document that was interrupted;
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

// verify checks a token as far as possible before the document is read.
func (r *Receiver) verify(ctx context.Context, token, source string, s *aaif.State) (transfer.Grant, error) {
	grant, err := transfer.VerifyToken(r.cfg.Keys, token, r.cfg.Platform, r.cfg.Now(ctx))
	if err != nil {
		return transfer.Grant{}, err
	}
	return grant, grant.Covers(source, s.AgentID, s.RunID, s.StateID, grant.Checksum)
}

// admit uses up the token: of several streams with it, one makes the record. own says that an
// operator of this platform imports the run.
func (r *Receiver) admit(ctx context.Context, g transfer.Grant, own bool) (*record, error) {
	entity, err := r.cfg.Agent(ctx, g.AgentID, g.Issuer)
	if err != nil {
		return nil, fmt.Errorf("agent_id %.50q: %w", g.AgentID, err)
	}
	if g.Issuer != entity && !matchAny(r.cfg.Issuers, g.Issuer) {
		return nil, fmt.Errorf("%w: %.80q may not transfer runs of %s", transfer.ErrTokenKey, g.Issuer, entity)
	}
	if err := r.checkUnused(ctx, state.ID{Entity: entity, Run: g.RunID}); err != nil {
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

// checkUnused returns [transfer.ErrRunExists] if a run exists under an id. A run that a receiver has
// prepared for a handoff whose record no longer exists was never accepted; checkUnused deletes it.
func (r *Receiver) checkUnused(ctx context.Context, id state.ID) error {
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

// opening returns the first state of a handoff's record.
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

package handoff

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// commandMembers are the commands that a source may give to a run that it transferred here, with
// their members besides commonMembers. A move is not among them: this platform decides where a run
// goes from here.
var commandMembers = map[string][]string{
	intents.TaskCancel: {"reason"},
	intents.TaskPause:  {"reason"},
	intents.TaskResume: {"reason"},
	intents.TaskSteer:  {"text"},
	intents.TaskSettle: {"call", "outcome", "result", "error", "reason"},
}

var commonMembers = []string{"run", "durable", "copy_of"}

// Command passes a command for a transferred run, an envelope of the handoff's issuer, to the
// run's entity here, and returns its answer, also an envelope.
//
// The source's key speaks for the agent, which may command all of its runs. So the command must
// name only the run of this handoff. The entity gets a new envelope with the known members of the
// command, so a signature over more members does not verify there.
func (r *Receiver) Command(ctx context.Context, id string, command []byte) ([]byte, error) {
	if r.cfg.Forward == nil {
		return nil, fmt.Errorf("%w: commands are not taken here", transfer.ErrAborted)
	}
	h, err := r.load(ctx, id)
	if err != nil {
		return nil, err
	}
	if phase := h.migration().Phase; phase != state.PhaseRunning && phase != state.PhaseAccepted {
		return nil, fmt.Errorf("handoff %s: %w", id, ErrNotStaged)
	}
	e, err := h.command(command)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transfer.ErrStream, err)
	}
	raw, err := e.AppendJSON(nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transfer.ErrStream, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return r.cfg.Forward(ctx, h.c.Mesh.Entity, raw)
}

// command makes the command for the entity from the received one.
func (h *record) command(raw []byte) (*envelope.Envelope, error) {
	e, err := envelope.Parse(raw)
	if err != nil {
		return nil, err
	}
	allowed, known := commandMembers[e.Intent]
	switch {
	case e.Type != envelope.TypeTask || !known:
		return nil, fmt.Errorf("%s %.80s is no command that a source may give", e.Type, e.Intent)
	case e.To != h.c.Mesh.Entity:
		return nil, fmt.Errorf("the command is for %.80q, and the run is of %s", e.To, h.c.Mesh.Entity)
	case e.From != h.migration().Issuer:
		return nil, fmt.Errorf("the command is from %.80q, and the handoff is of %s", e.From, h.migration().Issuer)
	}
	// A map has the names as they are written; a struct would take RUN for run.
	var members map[string]json.RawMessage
	if err := json.Unmarshal(e.Payload, &members); err != nil {
		return nil, err
	}
	var run string
	if json.Unmarshal(members["run"], &run) != nil || run != h.c.Doc.RunID {
		return nil, fmt.Errorf("the command must name run %s, which was transferred", h.c.Doc.RunID)
	}
	for name := range members {
		if !slices.Contains(commonMembers, name) && !slices.Contains(allowed, name) {
			return nil, fmt.Errorf("a command %s has no member %.80q here", e.Intent, name)
		}
	}
	payload, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	return &envelope.Envelope{
		V: e.V, ID: e.ID, TS: e.TS, Type: e.Type, From: e.From, To: e.To, Intent: e.Intent, Corr: e.Corr,
		Priority: e.Priority, Payload: payload, Sig: e.Sig,
	}, nil
}

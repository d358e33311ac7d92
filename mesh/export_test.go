package mesh_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// A parcel is a run that goes from berlin to paris as a file.
type parcel struct {
	*voyage
	office   *mesh.Node // in berlin, of the operator
	receiver *handoff.Receiver
	paris1   *sign.Signer
}

func newParcel(t *testing.T, change ...func(*voyage)) *parcel {
	v := newVoyage(t, change...)
	p := &parcel{voyage: v, paris1: newKey(t, "paris-2", v.parisKeys, v.berlinKeys)}
	p.office = v.berlin.lane(mesh.Config{Entity: ada, Version: "7.6.5", Verifier: sign.Verifier{Ring: v.berlinKeys}}, func(d *mesh.Durable) { d.Platform = "berlin" })
	p.receiver = v.receiver()
	return p
}

func (p *parcel) id() state.ID {
	return state.ID{Entity: reviewer, Run: state.RunID(reviewer, p.task.ID)}
}

func (p *parcel) export(change ...func(*mesh.ExportOptions)) ([]byte, error) {
	o := mesh.ExportOptions{Platform: "paris", Signer: p.signer}
	for _, f := range change {
		f(&o)
	}
	return p.office.Export(ctxFor(p.t), p.id(), o)
}

func (p *parcel) mustExport() []byte {
	p.t.Helper()
	file, err := p.export()
	if err != nil {
		p.t.Fatal(err)
	}
	return file
}

func (p *parcel) receipt(handoffID string) handoff.Receipt {
	p.t.Helper()
	r, err := p.receiver.Receipt(ctxFor(p.t), handoffID, "", p.paris1)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

func (p *parcel) phase() state.Phase { return p.berlin.record(p.task).Mesh.Migration.Phase }

func TestARunGoesAsAFile(t *testing.T) {
	t.Parallel()
	p := newParcel(t)
	p.write(wordsInTurn + 3)
	file := p.mustExport()
	equal(t, "status", p.berlin.record(p.task).Doc.Status, aaif.RunMigrating)
	equal(t, "phase", p.phase(), state.PhaseCommitted)
	p.berlin.drainedQueue()

	status, err := p.receiver.Import(ctxFor(t), file, nil)
	if err != nil || status.Phase != state.PhaseRunning {
		t.Fatalf("import: %+v, %v", status, err)
	}
	within(t, "the target", p.target.begun)
	accepted := p.receipt(status.Handoff)
	equal(t, "outcome", accepted.Outcome, transfer.OutcomeAccepted)
	for range 2 {
		if _, err := p.office.Confirm(ctxFor(t), accepted, mesh.ConfirmOptions{Signer: p.signer}); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "phase", p.phase(), state.PhaseRelaying)

	p.target.speak(100)
	close(within(t, "the tool call", p.target.tools))
	eventually(t, "it ends in paris", func() bool { return p.inParis().Doc.Status == aaif.RunCompleted })
	ended := p.receipt(status.Handoff)
	equal(t, "outcome", ended.Outcome, transfer.OutcomeEnded)
	forged := ended
	forged.Reply = bytes.Replace(forged.Reply, []byte("target"), []byte("nobody"), 1)
	if _, err := p.office.Confirm(ctxFor(t), forged, mesh.ConfirmOptions{Signer: p.signer}); !errors.Is(err, state.ErrChecksum) {
		t.Errorf("another reply: %v", err)
	}
	forgotten := p.berlin.forgetsIDs()
	for range 2 {
		if _, err := p.office.Confirm(ctxFor(t), ended, mesh.ConfirmOptions{Signer: p.signer}); err != nil {
			t.Fatal(err)
		}
		forgotten()
	}
	within(t, "the reply", p.heard.done)
	if p.heard.err != nil || string(p.heard.reply.Payload) != `{"by":"target"}` {
		t.Errorf("the caller hears %v, %v", p.heard.reply, p.heard.err)
	}
	equal(t, "status", p.berlin.record(p.task).Doc.Status, aaif.RunCompleted)
	terminal := 0
	for _, e := range p.berlin.replies(p.task) {
		if e.Type != envelope.TypeStream {
			terminal++
		}
	}
	equal(t, "terminal replies", terminal, 1)
}

// A run that came as a file is asked to move on within the target's mesh: it ends there all the
// same, and its source hears how.
func TestARunThatCameAsAFileMovesOn(t *testing.T) {
	t.Parallel()
	for name, abort := range map[string]bool{"and it does": false, "and the request is taken back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParcel(t)
			p.write(2)
			status, err := p.receiver.Import(ctxFor(t), p.mustExport(), nil)
			if err != nil {
				t.Fatal(err)
			}
			within(t, "the target", p.target.begun)
			client := p.paris.lane(mesh.Config{Entity: ada, Verifier: sign.Verifier{Ring: p.parisKeys}})
			command := func(cmd intents.Command) {
				t.Helper()
				if _, err := client.Command(ctxFor(t), reviewer, cmd); err != nil {
					t.Fatal(err)
				}
			}
			last, to := p.target, intents.Target{ID: p.task.ID}
			last.speak(2 * wordsInTurn)
			call := within(t, "the tool call", last.tools) // the run stops only after it
			if abort {
				command(intents.MigrateTask{Target: to, To: intents.MigrateAny})
				command(intents.MigrateTask{Target: to, Abort: true})
				close(call)
			} else {
				last = newAuthor("second")
				p.paris.serve(p.paris.lane(mesh.Config{Drain: time.Millisecond, Verifier: sign.Verifier{Ring: p.parisKeys}}), mesh.Agent{Handler: last})
				command(intents.MigrateTask{Target: to, To: intents.MigrateAny})
				close(call)
				within(t, "the second worker", last.begun)
			}
			if p.inParis().Mesh.Migration.ID == status.Handoff {
				t.Fatal("the move has no id of its own")
			}
			equal(t, "while it goes on", p.receipt(status.Handoff).Outcome, transfer.OutcomeAccepted)
			last.speak(100)
			eventually(t, "it ends in paris", func() bool { return p.inParis().Doc.Status == aaif.RunCompleted })
			ended := p.receipt(status.Handoff)
			if ended.Outcome != transfer.OutcomeEnded {
				t.Fatalf("the receipt says %s", ended.Outcome)
			}
			if _, err := p.office.Confirm(ctxFor(t), ended, mesh.ConfirmOptions{Signer: p.signer}); err != nil {
				t.Fatal(err)
			}
			within(t, "the reply", p.heard.done)
			if want := `{"by":"` + last.name + `"}`; p.heard.err != nil || string(p.heard.reply.Payload) != want {
				t.Errorf("the caller hears %v, %v, want %s", p.heard.reply, p.heard.err, want)
			}
		})
	}
}

// An error in the record goes along without its stack trace, which shows how the platform is
// built (AAIF, Security Considerations).
func TestAStackTraceDoesNotLeave(t *testing.T) {
	t.Parallel()
	p := newParcel(t)
	p.write(2)
	p.mustExport()
	rec := p.berlin.runRecord(p.task)
	c := p.berlin.record(p.task)
	c.Doc.Error = &aaif.RunError{Code: "E_MODEL", Message: "why it was tried again", StackTrace: "goroutine 17 of berlin"}
	data, err := state.Codec{}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.berlin.durableOver(p.berlin.js(p.berlin.nc)).States.Put(ctxFor(t), rec.ID, rec.Revision, data); err != nil {
		t.Fatal(err)
	}
	file := p.mustExport()
	if !bytes.Contains(file, []byte("why it was tried again")) || bytes.Contains(file, []byte("stack_trace")) || bytes.Contains(file, []byte("goroutine 17")) {
		t.Errorf("the file is %s", file)
	}
}

// A file that was lost is written again; of all of them one can be imported.
func TestAFileThatWasLost(t *testing.T) {
	t.Parallel()
	p := newParcel(t)
	p.write(2)
	first := p.mustExport()
	second := p.mustExport()
	if _, err := p.export(func(o *mesh.ExportOptions) { o.Platform = "rome" }); !errors.Is(err, mesh.ErrMoving) {
		t.Errorf("for another platform: %v", err)
	}
	if _, err := p.receiver.Import(ctxFor(t), second, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := p.receiver.Import(ctxFor(t), first, nil); !errors.Is(err, transfer.ErrRunExists) {
		t.Errorf("the first one, too: %v", err)
	}
}

// A file that the target refuses brings the run back, and the target can never
// import it then.
func TestAFileThatIsRefused(t *testing.T) {
	t.Parallel()
	p := newParcel(t)
	p.write(wordsInTurn + 2)
	file := p.mustExport()
	abort := intents.MigrateTask{Target: intents.Target{ID: p.task.ID}, Abort: true}
	if _, err := p.command(abort); codeOf(err) != envelope.CodeDenied {
		t.Errorf("an abort without the target's word: %v", err)
	}
	status, err := p.receiver.Decline(ctxFor(t), file, "no room")
	if err != nil || status.Phase != state.PhaseRefused {
		t.Fatalf("%+v, %v", status, err)
	}
	if _, err := p.receiver.Import(ctxFor(t), file, nil); !errors.Is(err, transfer.ErrTokenUsed) {
		t.Errorf("imported all the same: %v", err)
	}
	refused := p.receipt(status.Handoff)
	for range 2 {
		if _, err := p.office.Confirm(ctxFor(t), refused, mesh.ConfirmOptions{Signer: p.signer}); err != nil {
			t.Fatal(err)
		}
	}
	within(t, "the source", p.source.begun)
	p.finish("source")
}

func TestAFileIsRecalled(t *testing.T) {
	t.Parallel()
	p := newParcel(t)
	p.write(wordsInTurn + 2)
	p.mustExport()
	if _, err := p.office.Recall(ctxFor(t), p.id(), "the file was never sent", false); err != nil {
		t.Fatal(err)
	}
	within(t, "the source", p.source.begun)
	p.finish("source")
	if _, err := p.office.Recall(ctxFor(t), p.id(), "again", true); !errors.Is(err, mesh.ErrNotMoving) {
		t.Errorf("again: %v", err)
	}
}

// What the target has accepted is the target's: a recall would make a second owner.
func TestARecallAfterTheTargetAccepted(t *testing.T) {
	t.Parallel()
	p := newParcel(t)
	p.write(2)
	status, err := p.receiver.Import(ctxFor(t), p.mustExport(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.office.Confirm(ctxFor(t), p.receipt(status.Handoff), mesh.ConfirmOptions{Signer: p.signer}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.office.Recall(ctxFor(t), p.id(), "I am sure", false); !errors.Is(err, mesh.ErrAcceptedThere) {
		t.Errorf("recalled: %v", err)
	}
	equal(t, "phase", p.phase(), state.PhaseRelaying)
	equal(t, "status", p.berlin.record(p.task).Doc.Status, aaif.RunMigrating)
	// An operator whose other platform is lost for good may take it back all the same.
	if _, err := p.office.Recall(ctxFor(t), p.id(), "paris has burnt down", true); err != nil {
		t.Error(err)
	}
	equal(t, "phase", p.phase(), state.PhaseAborted)
}

func TestAWordThatIsNotTheTargets(t *testing.T) {
	t.Parallel()
	p := newParcel(t)
	p.write(2)
	file := p.mustExport()
	status, err := p.receiver.Import(ctxFor(t), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	genuine := p.receipt(status.Handoff)
	m := p.berlin.record(p.task).Mesh.Migration
	stranger := newKey(t, "stranger-1")
	verdict := func(s *sign.Signer, change func(*transfer.Verdict)) handoff.Receipt {
		v := transfer.Verdict{Handoff: m.ID, Issuer: reviewer, Source: "berlin", Target: "paris", RunID: p.id().Run, Outcome: transfer.OutcomeRefused, Issued: time.Now()}
		change(&v)
		token, err := v.Sign(s)
		if err != nil {
			t.Fatal(err)
		}
		return handoff.Receipt{Handoff: m.ID, Entity: reviewer, Run: p.id().Run, Outcome: v.Outcome, Verdict: token}
	}
	for what, r := range map[string]struct {
		receipt handoff.Receipt
		want    error
	}{
		"a stranger's key": {verdict(stranger, func(*transfer.Verdict) {}), transfer.ErrTokenKey},
		"another move":     {verdict(p.paris1, func(v *transfer.Verdict) { v.Handoff = "6a0f3c1e-90a7-4d5c-8b0e-0f5f4bb0e1aa" }), transfer.ErrTokenState},
		"another platform": {verdict(p.paris1, func(v *transfer.Verdict) { v.Target = "rome" }), transfer.ErrTokenState},
		"for another":      {verdict(p.paris1, func(v *transfer.Verdict) { v.Source = "rome" }), transfer.ErrTokenAudience},
	} {
		if _, err := p.office.Confirm(ctxFor(t), r.receipt, mesh.ConfirmOptions{Signer: p.signer}); !errors.Is(err, r.want) {
			t.Errorf("%s: %v", what, err)
		}
		equal(t, what+": phase", p.phase(), state.PhaseCommitted)
	}
	if _, err := p.office.Confirm(ctxFor(t), genuine, mesh.ConfirmOptions{Signer: p.signer}); err != nil {
		t.Fatal(err)
	}
	// Having accepted, it cannot refuse.
	if _, err := p.office.Confirm(ctxFor(t), verdict(p.paris1, func(*transfer.Verdict) {}), mesh.ConfirmOptions{Signer: p.signer}); !errors.Is(err, transfer.ErrTokenState) {
		t.Errorf("refused after accepted: %v", err)
	}
	equal(t, "phase", p.phase(), state.PhaseRelaying)
}

func TestAPausedRunGoesAsAFile(t *testing.T) {
	t.Parallel()
	p := newParcel(t)
	p.write(2)
	if _, err := p.command(intents.PauseTask{Target: intents.Target{ID: p.task.ID}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is paused", func() bool { return p.berlin.record(p.task).Doc.Status == aaif.RunPaused })
	if _, err := p.receiver.Import(ctxFor(t), p.mustExport(), nil); err != nil {
		t.Fatal(err)
	}
	equal(t, "status in paris", p.inParis().Doc.Status, aaif.RunPaused)
}

func TestExportRefuses(t *testing.T) {
	t.Parallel()
	p := newParcel(t)
	p.write(2)
	for what, change := range map[string]func(*mesh.ExportOptions){
		"no platform": func(o *mesh.ExportOptions) { o.Platform = "" },
		"no key":      func(o *mesh.ExportOptions) { o.Signer = nil },
	} {
		if _, err := p.export(change); err == nil {
			t.Errorf("%s: exported", what)
		}
	}
	equal(t, "status", p.berlin.record(p.task).Doc.Status, aaif.RunRunning)
	p.finish("source")
	if _, err := p.export(); !errors.Is(err, mesh.ErrEnded) {
		t.Errorf("a run that has ended: %v", err)
	}
	if _, err := p.office.Export(context.Background(), state.ID{Entity: reviewer, Run: "6a0f3c1e"}, mesh.ExportOptions{Platform: "paris", Signer: p.signer}); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("no run: %v", err)
	}
}

// Who does not wait until the run's step has ended hears of that, and has the file
// later.
func TestAnImpatientExport(t *testing.T) {
	t.Parallel()
	p := newParcel(t)
	p.write(2 * wordsInTurn)
	call := within(t, "the tool call", p.source.tools)
	for patience := 50 * time.Millisecond; ; patience *= 2 {
		ctx, cancel := context.WithTimeout(ctxFor(t), patience)
		_, err := p.office.Export(ctx, p.id(), mesh.ExportOptions{Platform: "paris", Signer: p.signer})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v", err)
		}
		if errors.Is(err, mesh.ErrStopping) {
			break // else its command was not answered in time
		}
	}
	close(call)
	p.mustExport()
}

// The key of a sealed file opens the file, and nothing else: paris, whose workers have no
// state key, stores the run in clear.
func TestASealedFile(t *testing.T) {
	t.Parallel()
	p := newParcel(t)
	p.write(wordsInTurn + 2)
	ring, err := state.NewKeyring(state.Key{Secret: bytes.Repeat([]byte{7}, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	file, err := p.export(func(o *mesh.ExportOptions) { o.Codec = state.Codec{Seal: ring} })
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(file), "turn 0") {
		t.Error("the file can be read")
	}
	if _, err := p.receiver.Import(ctxFor(t), file, nil); !errors.Is(err, handoff.ErrFileKey) {
		t.Errorf("without the key: %v", err)
	}
	node := p.paris.lane(mesh.Config{Entity: "service.handoff", Verifier: sign.Verifier{Ring: p.parisKeys}})
	foreign, err := node.Receiver(mesh.ReceiverOptions{
		Platform: "paris", Handoffs: p.handoffStore(), Codec: func(string) state.Codec { return state.Codec{Seal: ring} },
	})
	if err != nil {
		t.Fatal(err)
	}
	for what, key := range map[string]*state.Keyring{"as the state key": nil, "as both": ring} {
		if _, err := foreign.Import(ctxFor(t), file, key); !errors.Is(err, mesh.ErrSealKey) || !errors.Is(err, transfer.ErrUnknownAgent) {
			t.Errorf("%s: %v", what, err)
		}
	}
	equal(t, "handoffs", p.handoffs(), "")
	if _, err := p.receiver.Import(ctxFor(t), file, ring); err != nil {
		t.Fatal(err)
	}
	within(t, "the target", p.target.begun)
	equal(t, "status in paris", p.inParis().Doc.Status, aaif.RunRunning)
}

package handoff_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// A file has its token in it; no source waits for an answer.
func TestImportOfAFile(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	file, err := transfer.PutToken(x.doc, x.token)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, err := p.receiver.Import(ctx, bytes.Replace(file, []byte("hi hi"), []byte("hi ho"), 1), nil); !errors.Is(err, state.ErrChecksum) {
		t.Errorf("a changed file: %v", err)
	}
	if _, err := p.receiver.Import(ctx, x.doc, nil); !errors.Is(err, transfer.ErrTokenInvalid) {
		t.Errorf("without a token: %v", err)
	}
	equal(t, "records", p.records(), "")
	status, err := p.receiver.Import(ctx, file, nil)
	if err != nil || status.Phase != state.PhaseRunning {
		t.Fatalf("%+v, %v", status, err)
	}
	equal(t, "status", p.run(x.run).Doc.Status, aaif.RunRunning)
	if _, err := p.receiver.Import(ctx, file, nil); !errors.Is(err, transfer.ErrRunExists) {
		t.Errorf("again: %v", err)
	}
	// The document of another may not travel with this token.
	other, err := transfer.PutToken(p.pack().doc, x.token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.receiver.Import(ctx, other, nil); !errors.Is(err, transfer.ErrTokenState) {
		t.Errorf("another document: %v", err)
	}
}

// A process that imports a file dies before or after each write. The same import again brings
// the run in: its source has let go of it, and nothing else would start it.
func TestImportOfAFileAgainAfterACrash(t *testing.T) {
	t.Parallel()
	for _, at := range []state.Phase{state.PhaseReceiving, state.PhaseStaged, state.PhaseAccepted, state.PhaseRunning} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, written %v", at, after), func(t *testing.T) {
				t.Parallel()
				p := newPlatform(t)
				x := p.pack()
				file, err := transfer.PutToken(x.doc, x.token)
				if err != nil {
					t.Fatal(err)
				}
				p.fail = func(phase state.Phase, done bool) {
					if phase == at && done == after {
						panic(died{})
					}
				}
				func() {
					defer func() {
						if v := recover(); v != (died{}) {
							t.Fatalf("it did not die, but: %v", v)
						}
					}()
					_, _ = p.receiver.Import(t.Context(), file, nil)
				}()
				p.fail = nil
				switch status, err := p.receiver.Import(t.Context(), file, nil); {
				case at == state.PhaseRunning && after:
					if !errors.Is(err, transfer.ErrRunExists) {
						t.Errorf("it was done: %v", err)
					}
				case err != nil || status.Phase != state.PhaseRunning || status.Handoff != x.id:
					t.Fatalf("again: %+v, %v", status, err)
				}
				equal(t, "status", p.run(x.run).Doc.Status, aaif.RunRunning)
				if len(p.kicked) == 0 {
					t.Error("no worker was told")
				}
			})
		}
	}
}

// away is a store whose server goes away for one write, which is not stored, and is back soon after.
type away struct {
	state.Store
	put, at int // writes so far, and the one that fails
	gone    bool
}

func (a *away) Put(ctx context.Context, id state.ID, prev uint64, data []byte) (uint64, error) {
	if a.put++; a.put == a.at {
		a.gone = true
		return 0, state.ErrUncertain
	}
	return a.Store.Put(ctx, id, prev, data)
}

func (a *away) Get(ctx context.Context, id state.ID) (state.Record, error) {
	if a.gone {
		a.gone = false
		return state.Record{}, context.DeadlineExceeded
	}
	return a.Store.Get(ctx, id)
}

// The server goes away at a write of an import. The process that imports does not use up the token
// for that: the same import again brings the run in.
func TestImportOfAFileAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	for at := 1; at <= 4; at++ {
		t.Run(fmt.Sprintf("write %d", at), func(t *testing.T) {
			t.Parallel()
			p := newPlatform(t, func(cfg *handoff.ReceiverConfig, _ *handoff.HandlerOptions) {
				cfg.Handoffs = &away{Store: cfg.Handoffs, at: at}
			})
			x := p.pack()
			file, err := transfer.PutToken(x.doc, x.token)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.receiver.Import(t.Context(), file, nil); !errors.Is(err, state.ErrUncertain) {
				t.Fatalf("first: %v", err)
			}
			if status, err := p.receiver.Import(t.Context(), file, nil); err != nil || status.Phase != state.PhaseRunning {
				t.Fatalf("again: %+v, %v", status, err)
			}
			equal(t, "status", p.run(x.run).Doc.Status, aaif.RunRunning)
		})
	}
}

// A token is for one content, too: not for another with the same ids and a checksum of its
// own (AAIF, Security Considerations).
func TestImportOfAFileWithOtherContentThanItsToken(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	changed := bytes.Replace(x.doc, []byte("hi hi"), []byte("hi ho"), 1)
	sum, err := state.CheckChecksum(changed)
	if !errors.Is(err, state.ErrChecksum) {
		t.Fatal(err)
	}
	was, err := state.ContentChecksum(x.doc)
	if err != nil {
		t.Fatal(err)
	}
	file, err := transfer.PutToken(bytes.Replace(changed, []byte(was), []byte(sum), 1), x.token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.receiver.Import(context.Background(), file, nil); !errors.Is(err, transfer.ErrTokenState) {
		t.Errorf("other content: %v", err)
	}
	equal(t, "records", p.records(), "")
}

// An encrypted file has a checksum inside, too, which its token is for. A holder of the file's key
// who changes the content and leaves that checksum, or removes it, does not get it in.
func TestImportOfAnEncryptedFileWithOtherContentThanItsToken(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	key := state.Key{ID: "file", Secret: bytes.Repeat([]byte{7}, state.KeySize)}
	ring, err := state.NewKeyring(key)
	if err != nil {
		t.Fatal(err)
	}
	x := p.pack()
	c, err := state.Codec{}.Decode(x.doc)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := state.Codec{Seal: ring}.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	imported := func(change func(inner []byte) []byte) error {
		t.Helper()
		file, err := transfer.PutToken(resealed(t, key.Secret, doc, change), x.token)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.receiver.Import(t.Context(), file, ring)
		return err
	}
	if err := imported(func(b []byte) []byte { return bytes.Replace(b, []byte("hi hi"), []byte("hi ho"), 1) }); !errors.Is(err, state.ErrChecksum) {
		t.Errorf("other content: %v", err)
	}
	for what, member := range map[string]string{"checksum": `"checksum":"[0-9a-f]+",`, "provenance": `"provenance":\{[^}]*\},`} {
		if err := imported(func(b []byte) []byte { return regexp.MustCompile(member).ReplaceAll(b, nil) }); !errors.Is(err, state.ErrNoChecksum) {
			t.Errorf("without %s: %v", what, err)
		}
	}
	equal(t, "records", p.records(), "")
	if err := imported(bytes.Clone); err != nil {
		t.Errorf("as it was: %v", err)
	}
}

// resealed opens a sealed document, changes the text in it, and seals it again.
func resealed(t *testing.T, secret, doc []byte, change func([]byte) []byte) []byte {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var outer map[string]any
	must(json.Unmarshal(doc, &outer))
	sealed := outer[state.Extension].(map[string]any)["sealed"].(map[string]any)
	provenance := outer["provenance"].(map[string]any)
	nonce, err := base64.StdEncoding.DecodeString(sealed["nonce"].(string))
	must(err)
	text, err := base64.StdEncoding.DecodeString(sealed["text"].(string))
	must(err)
	delete(sealed, "text") // neither is authenticated by the seal
	delete(provenance, "checksum")
	canonical := func() []byte {
		raw, err := json.Marshal(outer)
		must(err)
		raw, err = envelope.Canonical(raw)
		must(err)
		return raw
	}
	aead, err := chacha20poly1305.NewX(secret)
	must(err)
	inner, err := aead.Open(nil, nonce, text, canonical())
	must(err)
	changed := change(inner)
	sealed["text"] = base64.StdEncoding.EncodeToString(aead.Seal(nil, nonce, changed, canonical()))
	provenance["checksum"], err = state.CheckChecksum(canonical())
	if !errors.Is(err, state.ErrNoChecksum) {
		t.Fatal(err)
	}
	return canonical()
}

// A document of another platform becomes a task here.
func TestImportFromAnotherPlatform(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	doc := p.foreign()
	if _, err := p.receiver.Import(context.Background(), p.packForeign(doc), nil); err != nil {
		t.Fatal(err)
	}
	c := p.run(doc.RunID)
	task, err := envelope.Parse(c.Mesh.Task)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "task", string(task.Payload), `{"text":"and now?"}`)
	equal(t, "task id", task.ID, c.Mesh.TaskID)
	equal(t, "status", c.Doc.Status, aaif.RunRunning)
	equal(t, "conversation", c.Doc.Conversation[0].Content, "and now?")
}

// The approval that a run of another platform waits for cannot be given here.
func TestImportOfARunThatWaitsForApproval(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*aaif.State){
		"status":  func(d *aaif.State) { d.Status = aaif.RunAwaitingApproval },
		"request": func(d *aaif.State) { d.ApprovalRequest = &aaif.ApprovalRequest{TriggerDescription: "47 recipients"} },
	} {
		p := newPlatform(t)
		doc := p.foreign()
		change(doc)
		doc.PendingToolCalls = []aaif.PendingToolCall{{ID: "1", ToolName: "send_email", Arguments: []byte(`{}`), Status: aaif.ToolCallPending}}
		if _, err := p.receiver.Import(context.Background(), p.packForeign(doc), nil); !errors.Is(err, state.ErrInvalid) || !strings.Contains(err.Error(), "approval") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := p.states.Get(context.Background(), state.ID{Entity: entity, Run: doc.RunID}); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("%s: a run was made: %v", what, err)
		}
	}
}

// Nothing says what a run without a conversation was given, or how far it came.
func TestImportOfARunWithoutAConversation(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	doc := p.foreign()
	doc.Conversation = nil
	if _, err := p.receiver.Import(context.Background(), p.packForeign(doc), nil); !errors.Is(err, state.ErrInvalid) || !strings.Contains(err.Error(), "no conversation") {
		t.Errorf("imported: %v", err)
	}
	if _, err := p.states.Get(context.Background(), state.ID{Entity: entity, Run: doc.RunID}); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a run was made: %v", err)
	}
}

// foreign is a document of a platform that is no mesh.
func (p *platform) foreign() *aaif.State {
	return &aaif.State{
		Standard: "SC-006", StateID: newID(p.t), AgentID: agentID, RunID: newID(p.t), CheckpointAt: state.Time(p.now), Status: aaif.RunPaused,
		Conversation: []aaif.Message{{Role: aaif.MessageUser, Content: "and now?"}},
		Provenance:   &aaif.StateProvenance{SourcePlatform: there},
	}
}

// packForeign makes a file of one, with a token.
func (p *platform) packForeign(doc *aaif.State) []byte {
	p.t.Helper()
	plain, err := aaif.New(doc)
	if err != nil {
		p.t.Fatal(err)
	}
	text, err := plain.MarshalJSON()
	if err != nil {
		p.t.Fatal(err)
	}
	g := transfer.Grant{
		ID: newID(p.t), Issuer: entity, Source: there, Target: here, AgentID: agentID, RunID: doc.RunID, StateID: doc.StateID, Issued: p.now,
	}
	if g.Checksum, err = state.ContentChecksum(text); err != nil {
		p.t.Fatal(err)
	}
	token, err := g.Sign(p.signer)
	if err != nil {
		p.t.Fatal(err)
	}
	file, err := transfer.PutToken(text, token)
	if err != nil {
		p.t.Fatal(err)
	}
	return file
}

// One record that cannot be read hides no other, and keeps no receiver from its start.
func TestARecordThatCannotBeRead(t *testing.T) {
	t.Parallel()
	ring, err := state.NewKeyring(state.Key{Secret: bytes.Repeat([]byte{7}, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	var codec state.Codec
	p := newPlatform(t, func(cfg *handoff.ReceiverConfig, _ *handoff.HandlerOptions) {
		cfg.Codec = func(string) state.Codec { return codec }
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	taken := func() string {
		x := p.pack()
		file, err := transfer.PutToken(x.doc, x.token)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.receiver.Import(t.Context(), file, nil); err != nil {
			t.Fatal(err)
		}
		return x.id
	}
	codec.Seal = ring
	foreign := taken()
	codec.Seal = nil
	own := taken()
	all, err := p.receiver.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Handoff != own {
		t.Errorf("list: %+v, %v, want %s", all, err, own)
	}
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), foreign) {
		t.Errorf("log: %s", log.String())
	}
}

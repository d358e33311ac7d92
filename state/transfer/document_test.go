package transfer_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

func travelling(t testing.TB) *state.Checkpoint {
	t.Helper()
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "agent.ask", []byte(`{"text":"hi"}`))
	raw, err := task.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := state.New("agent.x", task.ID, "")
	c.Mesh.Task, c.Mesh.Told, c.Mesh.Owner, c.Mesh.Work = raw, "half a sen", "me", 7
	c.Doc.Conversation = []aaif.Message{{Role: aaif.MessageUser, Content: "hi"}}
	c.Doc.Error = &aaif.RunError{Code: "E", StackTrace: "goroutine 1"}
	c.Mesh.Migration = &state.Migration{ID: grant().ID, Phase: state.PhaseCaptured, Status: aaif.RunRunning, To: "https://b", Key: "k", By: "human.ada"}
	return c
}

func TestOutboundOmitsInternalMembers(t *testing.T) {
	t.Parallel()
	c := travelling(t)
	out := c.Outbound("berlin", "paris", "9.8.7")
	data, err := state.Codec{}.Encode(out)
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := state.ContentChecksum(data); err != nil || sum != out.Doc.Provenance.Checksum {
		t.Errorf("the codec's checksum is %s, the token's %s, %v", out.Doc.Provenance.Checksum, sum, err)
	}
	for _, secret := range []string{"goroutine", `"owner"`, `"work"`, "https://b", `"key"`} {
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("%s is in %s", secret, data)
		}
	}
	if p := out.Doc.Provenance; p.SourcePlatform != "berlin" || p.TargetPlatform != "paris" || out.Doc.Status != aaif.RunMigrating ||
		out.Mesh.Told != "half a sen" || out.Mesh.Migration.Status != aaif.RunRunning {
		t.Errorf("%+v, %+v", p, out.Mesh)
	}
	if p := out.Doc.Provenance; p.SourceRuntimeVersion != "9.8.7" || p.CapturedBy != "human.ada" {
		t.Errorf("captured by %q, with %q", p.CapturedBy, p.SourceRuntimeVersion)
	}
	if c.Doc.Error.StackTrace == "" || c.Mesh.Owner != "me" || c.Doc.Status != aaif.RunRunning {
		t.Error("the original has changed")
	}
}

func TestTokenInADocument(t *testing.T) {
	t.Parallel()
	ring, err := state.NewKeyring(state.Key{Secret: bytes.Repeat([]byte{7}, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	for name, codec := range map[string]state.Codec{"clear": {}, "sealed": {Seal: ring}} {
		doc, err := codec.Encode(travelling(t).Outbound("berlin", "paris", "9.8.7"))
		if err != nil {
			t.Fatal(err)
		}
		with, err := transfer.PutToken(doc, "a.b.c")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		token, without, err := transfer.TakeToken(with)
		if err != nil || token != "a.b.c" {
			t.Fatalf("%s: token %q, %v", name, token, err)
		}
		if canonical(t, without) != canonical(t, doc) {
			t.Errorf("%s: the document is\n%s, and was\n%s", name, without, doc)
		}
		if _, err := codec.Decode(without); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for change, data := range map[string][]byte{
			"another token":  bytes.Replace(with, []byte("a.b.c"), []byte("a.b.d"), 1),
			"another status": bytes.Replace(with, []byte(`"migrating"`), []byte(`"paused"`), 1),
		} {
			if _, _, err := transfer.TakeToken(data); !errors.Is(err, state.ErrChecksum) {
				t.Errorf("%s with %s: %v", name, change, err)
			}
		}
		if _, _, err := transfer.TakeToken(doc); !errors.Is(err, transfer.ErrTokenInvalid) {
			t.Errorf("%s without a token: %v", name, err)
		}
		if _, err := transfer.PutToken(with, "x"); err == nil {
			t.Errorf("%s: a second token was put in", name)
		}
	}
	if _, err := transfer.PutToken([]byte(strings.Replace(string(stated(t, `{"provenance":{"checksum":""}}`)), `{`, `{"a":1,`, 1)), "x"); !errors.Is(err, state.ErrChecksum) {
		t.Errorf("a wrong checksum: %v", err)
	}
}

// FuzzTakeToken: a token that is taken out equals the token that would have been put in.
func FuzzTakeToken(f *testing.F) {
	doc, err := state.Codec{}.Encode(travelling(f).Outbound("berlin", "paris", "9.8.7"))
	if err != nil {
		f.Fatal(err)
	}
	with, err := transfer.PutToken(doc, "a.b.c")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(with)
	f.Add(doc)
	f.Add([]byte(`{"provenance":{"migration_token":"t","checksum":"x"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		token, without, err := transfer.TakeToken(data)
		if err != nil {
			return
		}
		with, err := transfer.PutToken(without, token)
		if err != nil {
			t.Fatal(err)
		}
		if again, text, err := transfer.TakeToken(with); err != nil || again != token || canonical(t, text) != canonical(t, without) {
			t.Fatalf("%q, %v\n%s\n%s", again, err, text, without)
		}
	})
}

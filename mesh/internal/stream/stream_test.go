package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// sending is a run that streams.
type sending struct{}

func (sending) RunID() string { return "r" }

func (sending) Encode(seq int, payload json.RawMessage) (jetstream.Reply, error) {
	var members map[string]any
	if err := json.Unmarshal(payload, &members); err != nil {
		return jetstream.Reply{}, err
	}
	members["seq"] = seq
	numbered, err := json.Marshal(members)
	if err != nil {
		return jetstream.Reply{}, err
	}
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
	data, err := task.Reply(envelope.TypeStream, numbered).AppendJSON(nil)
	header := nats.Header{jetstream.HeaderSeq: {fmt.Sprint(seq)}}
	return jetstream.Reply{Entity: "agent.x", TaskID: "t", MsgID: fmt.Sprint(seq), Header: header, Data: data}, err
}

// newLane returns a lane on a server of its own.
func newLane(t testing.TB) *Lane {
	return newLaneOn(t, natstest.Run(t, natsd.Config{JetStream: true}))
}

func newLaneOn(t testing.TB, srv *natsd.Server) *Lane {
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	return &Lane{
		Entity: "agent.x", Context: t.Context(), Replies: jetstream.NewReplies(js, subject.Map{}),
		Temporary: func(error) bool { return false }, Log: slog.New(slog.DiscardHandler),
	}
}

// owner returns the stream of a run that an owner claims with the checkpoint c.
func owner(t testing.TB, lane *Lane, c *state.Checkpoint) *Stream {
	d := &Stream{}
	d.Init(lane, sending{})
	if err := d.Read(t.Context(), "agent.x", "t", c); err != nil {
		t.Fatal(err)
	}
	return d
}

func emit(t testing.TB, d *Stream, words ...string) {
	for _, word := range words {
		if err := d.Emit(textPayload(word)); err != nil {
			t.Fatal(err)
		}
	}
}

// sent returns what is stored: the numbered texts, with "!" where the text begins anew.
func sent(t testing.TB, lane *Lane) (out []string) {
	for msg, err := range lane.Replies.Read(t.Context(), "agent.x", "t", 0) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, line(t, msg))
	}
	return out
}

func line(t testing.TB, msg jetstream.Message) string {
	t.Helper()
	e, err := envelope.Parse(msg.Data)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Seq         int
		Text, Event string
		Restart     bool
	}
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		t.Fatal(err)
	}
	mark := ""
	if p.Restart {
		mark = "!"
	}
	return fmt.Sprint(p.Seq, mark, p.Text+p.Event)
}

// A handler that begins its turn anew after a crash replays text: what was sent is not sent
// again.
func TestTheTextOfATurnIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		replay []string
		want   string
		text   string // of the turn in the end
	}{
		{"the same", []string{"one ", "two "}, "", "one two "},
		{"the same in other pieces, and more", []string{"one tw", "o three"}, "3three", "one two three"},
		{"another text", []string{"one ", "zwei "}, "3!one zwei ", "one zwei "},
		{"less", []string{"one "}, "3!one ", "one "},
		{"nothing", nil, "3!", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			lane, none := newLane(t), state.New("agent.x", "t", "")
			first := owner(t, lane, none)
			emit(t, first, "one ", "two ")
			if err := first.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			second := owner(t, lane, none) // the first owner died before its checkpoint
			emit(t, second, c.replay...)
			if err := second.EndTurn(true); err != nil {
				t.Fatal(err)
			}
			if err := second.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := []string{"1one ", "2two "}
			if c.want != "" {
				want = append(want, c.want)
			}
			if got := sent(t, lane); !slices.Equal(got, want) {
				t.Errorf("sent %q, want %q", got, want)
			}
			if got := second.SentText(); got != c.text {
				t.Errorf("the text is %q, want %q", got, c.text)
			}
		})
	}
}

// A claim that captures a run seals its stream. If it is not stored, the next try may go on.
func TestASealEndsWithItsClaim(t *testing.T) {
	t.Parallel()
	lane, c := newLane(t), state.New("agent.x", "t", "")
	d := owner(t, lane, c)
	if err := d.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Emit(textPayload("one")); err == nil {
		t.Error("it is not sealed")
	}
	if err := d.Read(t.Context(), "agent.x", "t", c); err != nil {
		t.Fatal(err)
	}
	emit(t, d, "one")
}

// A worker that may read the last reply only withdraws the text that it cannot know, before
// another owner goes on, and not where the run ends anyhow.
func TestTextThatCannotBeReadIsWithdrawn(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	lane, c := newLaneOn(t, srv), state.New("agent.x", "t", "")
	first := owner(t, lane, c)
	emit(t, first, "one ", "two ")
	if err := first.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	fenced := newLaneOn(t, srv)
	fenced.Replies.Fence()
	ending, moving := owner(t, fenced, c), owner(t, fenced, c)
	ending.Save(c)
	if got := sent(t, lane); len(got) != 2 || c.Mesh.Stream != 2 || c.Mesh.Told != "" {
		t.Errorf("sent %q, checkpoint %d %q", got, c.Mesh.Stream, c.Mesh.Told)
	}
	if err := moving.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	moving.Save(c)
	if got := sent(t, lane); !slices.Equal(got, []string{"1one ", "2two ", "3!"}) || c.Mesh.Stream != 3 {
		t.Errorf("sent %q, checkpoint %d", got, c.Mesh.Stream)
	}
}

// A handler that asks for the text goes on after it.
func TestAHandlerThatKnowsTheSentTextContinuesIt(t *testing.T) {
	t.Parallel()
	lane, c := newLane(t), state.New("agent.x", "t", "")
	first := owner(t, lane, c)
	emit(t, first, "one ")
	first.Save(c)
	emit(t, first, "two ")
	if err := first.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := owner(t, lane, c)
	if got := second.SentText(); got != "one two " {
		t.Errorf("sent before: %q", got)
	}
	emit(t, second, "three")
	second.Saved("one two three", "") // the turn is finished
	if got := second.SentText(); got != "" {
		t.Errorf("text of the next turn: %q", got)
	}
	if err := second.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	var end *envelope.Error
	if err := second.Emit(textPayload("four")); !errors.As(err, &end) || end.Code != envelope.CodeCancelled {
		t.Errorf("after the end: %v", err)
	}
	if got, want := strings.Join(sent(t, lane), "|"), "1one |2two |3three"; got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// The reply of a run that failed is stored while the run is tried again: an owner reads what the
// one before has sent in this try.
func TestTheTextOfARetryIsReadBesideTheOldReply(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	lane, c := newLaneOn(t, srv), state.New("agent.x", "t", "")
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	failed := jetstream.Reply{MsgID: "end", Data: []byte(`{}`), Header: nats.Header{jetstream.HeaderSeq: {"1"}}}
	if _, err := jetstream.NewStates(js, subject.Map{}).Reply(t.Context(), c.ID(), 0, failed, jetstream.Note{Status: "failed"}, &state.End{TaskID: "t"}); err != nil {
		t.Fatal(err)
	}
	first := owner(t, lane, c)
	emit(t, first, "one ", "two ")
	if err := first.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := owner(t, lane, c).SentText(); got != "one two " {
		t.Errorf("sent before: %q", got)
	}
}

// Two owners that both believe to have the run send envelopes with the same ids: one of them
// is stored, and the owner that goes on sends its text anew.
func TestTextOfAnOwnerThatHadLostTheRunIsReplaced(t *testing.T) {
	t.Parallel()
	lane, c := newLane(t), state.New("agent.x", "t", "")
	lost, mine := owner(t, lane, c), owner(t, lane, c)
	emit(t, lost, "lost ")
	if err := lost.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	emit(t, mine, "mine ")
	if err := mine.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	emit(t, mine, "too")
	if err := mine.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(sent(t, lane), "|"), "1lost |2!mine |3too"; got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

func TestAStreamThatIsNotStoredFails(t *testing.T) {
	t.Parallel()
	lane := newLane(t)
	d := owner(t, lane, state.New("agent.x", "t", ""))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	emit(t, d, "one")
	if err := d.Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := d.Flush(t.Context()); err != nil || len(sent(t, lane)) != 1 {
		t.Errorf("%v, sent %q", err, sent(t, lane))
	}
}

// What is larger than a message of the server is refused to the handler at once, which may go
// on without it.
func TestAnEnvelopeThatIsTooLargeIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	lane, c := newLane(t), state.New("agent.x", "t", "")
	d := owner(t, lane, c)
	emit(t, d, "one ")
	for _, payload := range []json.RawMessage{textPayload(long(2 << 20)), restart(long(2 << 20)), json.RawMessage(`{"event":"` + long(2<<20) + `"}`)} {
		if err := d.Emit(payload); !errors.Is(err, jetstream.ErrTooLarge) {
			t.Errorf("%.20s: %v", payload, err)
		}
	}
	emit(t, d, "two")
	if err := d.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := sent(t, lane); !slices.Equal(got, []string{"1one ", "2two"}) || d.SentText() != "one two" {
		t.Errorf("sent %.100q, the text is %.100q", got, d.SentText())
	}
}

// Text that begins anew may be longer than a message: that of each envelope fitted one.
func TestTextThatBeginsAnewIsSentInAsManyEnvelopesAsItNeeds(t *testing.T) {
	t.Parallel()
	lane, none := newLane(t), state.New("agent.x", "t", "")
	first := owner(t, lane, none)
	half := strings.Repeat("ä", 350_000)
	emit(t, first, half, half, "one")
	if err := first.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := owner(t, lane, none) // the first owner died before its checkpoint
	emit(t, second, half, half, "two", "three")
	if err := second.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	var text string
	got := sent(t, lane)
	for i, envelope := range got[3:] {
		part, ok := strings.CutPrefix(envelope, fmt.Sprint(i+4, map[bool]string{true: "!"}[i == 0]))
		if !ok || !utf8.ValidString(part) {
			t.Errorf("envelope %d is %.10q", i+4, envelope)
		}
		text += part
	}
	if want := half + half + "twothree"; text != want || second.SentText() != want {
		t.Errorf("%d envelopes with %d bytes of text, it is said to be %d", len(got), len(text), len(second.SentText()))
	}
}

func long(n int) string { return strings.Repeat("x", n) }

// A handler may emit an object whose text is no text. The next owner counts it too, and numbers its
// own envelopes after it.
func TestAnEnvelopeWhoseTextIsNoTextIsCounted(t *testing.T) {
	t.Parallel()
	lane, c := newLane(t), state.New("agent.x", "t", "")
	first := owner(t, lane, c)
	emit(t, first, "one ")
	for _, odd := range []string{`{"text":7}`, `{"restart":"yes"}`} {
		if err := first.Emit(json.RawMessage(odd)); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := owner(t, lane, c)
	if next.seq != 3 || next.text != "one " {
		t.Errorf("the next owner goes on after envelope %d, with the text %q", next.seq, next.text)
	}
}

// signing is a run that signs what it streams.
type signing struct{ signer *sign.Signer }

func (signing) RunID() string { return "r" }

func (s signing) Encode(seq int, payload json.RawMessage) (jetstream.Reply, error) {
	reply, err := sending{}.Encode(seq, payload)
	if err != nil {
		return reply, err
	}
	e, err := envelope.Parse(reply.Data)
	if err != nil {
		return reply, err
	}
	reply.Data, err = s.signer.AppendJSON(nil, e)
	return reply, err
}

// An envelope whose signature does not verify says nothing about what the agent has sent (AEE,
// "Signature Verification and Trust Model"), but its number is not used again.
func TestForgedTextWasNotSent(t *testing.T) {
	t.Parallel()
	lane, c := newLane(t), state.New("agent.x", "t", "")
	own, key, err := sign.NewKey("own", sign.Ed25519, "agent.x")
	if err != nil {
		t.Fatal(err)
	}
	lane.Verifier = sign.Verifier{Ring: &sign.Ring{}, Mode: sign.Required}
	if err := lane.Verifier.Ring.Put(sign.Local, key); err != nil {
		t.Fatal(err)
	}
	owner := func() *Stream {
		d := &Stream{}
		d.Init(lane, signing{own})
		if err := d.Read(t.Context(), "agent.x", "t", c); err != nil {
			t.Fatal(err)
		}
		return d
	}
	forge := func(seq int) {
		reply, err := sending{}.Encode(seq, textPayload("forged "))
		if err != nil {
			t.Fatal(err)
		}
		reply.MsgID = fmt.Sprint("forged ", seq)
		if err := lane.Replies.Publish(t.Context(), reply); err != nil {
			t.Fatal(err)
		}
	}
	first := owner()
	forge(1)
	emit(t, first, "one ")
	forge(2)
	emit(t, first, "two ")
	if err := first.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next := owner(); next.seq != 2 || next.text != "one two " || next.gap {
		t.Errorf("the next owner goes on after envelope %d, with the text %q, gap %t", next.seq, next.text, next.gap)
	}
	forge(5)
	forge(math.MaxInt)
	next := owner()
	emit(t, next, "one ", "two ", "three")
	if err := next.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := sent(t, lane), "6!one |7two |8three"; !strings.HasSuffix(strings.Join(got, "|"), want) {
		t.Errorf("sent %q, want %q at the end", got, want)
	}
	forge(math.MaxInt32)
	next = owner()
	emit(t, next, "all of it")
	if err := next.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next = owner(); next.seq != math.MaxInt32+1 || next.text != "all of it" || next.gap {
		t.Errorf("after a high number the next owner goes on after envelope %d, with the text %q, gap %t", next.seq, next.text, next.gap)
	}
}

// Where signatures are optional, every user who may publish replies can give a number; one that no
// record can hold is not continued. Numbers that follow one another count, however high.
func TestANumberThatNoRecordHoldsIsNotContinued(t *testing.T) {
	t.Parallel()
	lane, c := newLane(t), state.New("agent.x", "t", "")
	say := func(seq int) {
		t.Helper()
		reply, err := sending{}.Encode(seq, textPayload("said "))
		if err != nil {
			t.Fatal(err)
		}
		reply.MsgID = envelope.NewID() // the server must not take a repeated number for a duplicate
		if err := lane.Replies.Publish(t.Context(), reply); err != nil {
			t.Fatal(err)
		}
	}
	want := func(seq int) {
		t.Helper()
		if next := owner(t, lane, c); next.seq != seq {
			t.Errorf("the next owner goes on after envelope %d, want %d", next.seq, seq)
		}
	}
	say(1)
	say(1<<53 + 1)
	say(math.MaxInt)
	say(wire.MaxCount + 1)
	want(1)
	say(wire.MaxCount)
	want(wire.MaxCount)
	say(wire.MaxCount + 1)
	say(wire.MaxCount + 2)
	say(wire.MaxCount + 4)
	want(wire.MaxCount + 2)
}

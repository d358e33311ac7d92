package traffic

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// StreamView prints stream envelopes as they arrive: text as text, an agent's
// tool calls and where its text begins again as notes, and everything else as a line of JSON.
type StreamView struct {
	Term *term.Terminal
	Out  *term.Stream    // destination of the text
	text strings.Builder // the text of the stream so far
	turn strings.Builder // the same, since the last tool call
	open bool            // the last line of text has not ended
}

// toolNote is a tool call in an agent's stream.
type toolNote struct {
	Call *struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"tool_call"`
	Result *struct {
		Name  string  `json:"name"`
		MS    float64 `json:"ms"`
		Error string  `json:"error"`
	} `json:"tool_result"`
	HandedTo string `json:"handed_to"` // the agent that answers from here on
}

// Show prints what is new in an envelope of the stream.
func (v *StreamView) Show(e *envelope.Envelope) error {
	if v.Term.JSON {
		b, err := e.AppendJSON(nil)
		if err != nil {
			return err
		}
		v.Term.Raw(b)
		return nil
	}
	if text, ok := term.TextOf(e.Payload); ok {
		v.say(text)
		return nil
	}
	v.End()
	var again struct {
		Restart bool    `json:"restart"`
		Text    *string `json:"text"`
	}
	if json.Unmarshal(e.Payload, &again) == nil && again.Restart && again.Text != nil {
		before := strings.TrimSuffix(v.text.String(), v.turn.String())
		v.text.Reset()
		v.turn.Reset()
		v.text.WriteString(before)
		v.Term.Note("   ↺ the model begins this text again")
		v.say(*again.Text)
		return nil
	}
	var note toolNote
	if json.Unmarshal(e.Payload, &note) == nil && (note.Call != nil || note.Result != nil || note.HandedTo != "") {
		v.tool(note)
		return nil
	}
	fmt.Fprintf(v.Out, "%s\n", plain.JSON(term.Compact(e.Payload)))
	return nil
}

func (v *StreamView) say(text string) {
	v.text.WriteString(text)
	v.turn.WriteString(text)
	v.open = !strings.HasSuffix(text, "\n")
	fmt.Fprint(v.Out, v.Out.Safe(text))
}

func (v *StreamView) tool(note toolNote) {
	if note.HandedTo != "" {
		v.Term.Note("   ⇒ delegated to %s", term.OneLine(note.HandedTo))
		v.text.Reset() // another agent answers from here on
	}
	v.turn.Reset()
	if c := note.Call; c != nil {
		v.Term.Note("   → %s(%s)", term.OneLine(c.Name), term.OneLine(clip.Text(string(c.Arguments), 100)))
	}
	if r := note.Result; r != nil {
		outcome := "done"
		if r.Error != "" {
			outcome = clip.Text(r.Error, 100)
		}
		v.Term.Note("   ← %s: %s, %v", term.OneLine(r.Name), term.OneLine(outcome), time.Duration(r.MS*float64(time.Millisecond)).Round(time.Millisecond))
	}
}

// Said reports whether a result's text was printed already: as the whole
// stream, or as the turn after the last tool call.
func (v *StreamView) Said(text string) bool {
	return text == v.text.String() || v.turn.Len() > 0 && text == v.turn.String()
}

// End ends an unfinished line of text.
func (v *StreamView) End() {
	if v.open {
		fmt.Fprintln(v.Out)
		v.open = false
	}
}

package main

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

// streamView prints stream envelopes as they arrive: text as text, an agent's
// tool calls as notes, and everything else as a line of JSON.
type streamView struct {
	term *term.Terminal
	out  *term.Stream    // destination of the text
	text strings.Builder // the text of the stream so far
	turn strings.Builder // the same, since the last tool call
	open bool            // the last line of text has not ended

	// about describes the result of a tool call; may be nil.
	about func(tool string) string
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

func (v *streamView) show(e *envelope.Envelope) error {
	if v.term.JSON {
		b, err := e.AppendJSON(nil)
		if err != nil {
			return err
		}
		v.term.Raw(b)
		return nil
	}
	if text, ok := term.TextOf(e.Payload); ok {
		v.text.WriteString(text)
		v.turn.WriteString(text)
		v.open = !strings.HasSuffix(text, "\n")
		fmt.Fprint(v.out, v.out.Safe(text))
		return nil
	}
	v.end()
	var note toolNote
	if json.Unmarshal(e.Payload, &note) == nil && (note.Call != nil || note.Result != nil || note.HandedTo != "") {
		v.tool(note)
		return nil
	}
	fmt.Fprintf(v.out, "%s\n", plain.JSON(term.Compact(e.Payload)))
	return nil
}

func (v *streamView) tool(note toolNote) {
	if note.HandedTo != "" {
		v.term.Note("   ⇒ handed on to %s", term.OneLine(note.HandedTo))
		v.text.Reset() // another agent answers from here on
	}
	v.turn.Reset()
	if c := note.Call; c != nil {
		v.term.Note("   → %s(%s)", term.OneLine(c.Name), term.OneLine(clip.Text(string(c.Arguments), 100)))
	}
	if r := note.Result; r != nil {
		outcome := "done"
		switch {
		case r.Error != "":
			outcome = clip.Text(r.Error, 100)
		case v.about != nil && v.about(r.Name) != "":
			outcome = v.about(r.Name)
		}
		v.term.Note("   ← %s: %s, %v", term.OneLine(r.Name), term.OneLine(outcome), time.Duration(r.MS*float64(time.Millisecond)).Round(time.Millisecond))
	}
}

// said reports whether a result's text was printed already: as the whole
// stream, or as the turn after the last tool call.
func (v *streamView) said(text string) bool {
	return text == v.text.String() || v.turn.Len() > 0 && text == v.turn.String()
}

// end ends an unfinished line of text.
func (v *streamView) end() {
	if v.open {
		fmt.Fprintln(v.out)
		v.open = false
	}
}

package agents

import (
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/mesh"
)

// turnStream makes the writer of one turn's streamed text. told is the part of the turn that the
// sender has already received, before a crash, a transfer, a pause, or an
// answer that the model broke off; it is not sent again.
func (l *loop) turnStream(task *mesh.Task, told string) *turnStream {
	t := &turnStream{unmatched: told}
	t.has.WriteString(told)
	if !l.streaming(task) {
		return t
	}
	t.emit = task.EmitText
	t.restart = func(text string) error { return emit(task, restartEvent{Restart: true, Text: text}) }
	add := t.add
	if l.wantsJSON(task) {
		add = (&proseFilter{emit: t.add}).add
	}
	t.onDelta = func(d model.Delta) error {
		t.heard = true
		return add(d.Text)
	}
	t.onRest = func(d model.Delta) error {
		t.heard = true
		return t.tell(d.Text)
	}
	return t
}

// restartEvent says that the text of this turn begins anew and that the text
// streamed before is void.
type restartEvent struct {
	Restart bool   `json:"restart"`
	Text    string `json:"text"`
}

// turnStream streams the text of a turn, part of which the sender may already have. Regenerated
// text is compared with that part, and not sent while both agree. At the first difference the turn
// is streamed anew, with a restartEvent.
type turnStream struct {
	onDelta func(model.Delta) error // gets the deltas of a turn from its beginning; nil if the sender wants no stream
	onRest  func(model.Delta) error // gets the deltas that continue the part already streamed; such a turn is no JSON answer
	heard   bool                    // the model has begun to answer

	has       strings.Builder // what the sender has received of the turn
	unmatched string          // the part already streamed that the new text has not reached yet
	matched   strings.Builder
	emit      func(string) error
	restart   func(string) error
}

// tell streams the next text.
func (t *turnStream) tell(text string) error {
	t.has.WriteString(text)
	return t.emit(text)
}

// restartTurn streams the turn from its beginning.
func (t *turnStream) restartTurn(text string) error {
	t.unmatched = ""
	t.has.Reset()
	t.has.WriteString(text)
	return t.restart(text)
}

func (t *turnStream) add(text string) error {
	if t.unmatched == "" {
		return t.tell(text)
	}
	rest, longer := strings.CutPrefix(text, t.unmatched)
	switch {
	case longer:
		t.unmatched = ""
		if rest == "" {
			return nil
		}
		return t.tell(rest)
	case strings.HasPrefix(t.unmatched, text):
		t.matched.WriteString(text)
		t.unmatched = t.unmatched[len(text):]
		return nil
	}
	return t.restartTurn(t.matched.String() + text)
}

// end ends the turn. If the sender has received more than the turn contains,
// the turn is streamed anew.
func (t *turnStream) end() error {
	if t.unmatched == "" || t.restart == nil {
		return nil
	}
	return t.restartTurn(t.matched.String())
}

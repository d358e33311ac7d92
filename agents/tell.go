package agents

import (
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/mesh"
)

// teller makes what tells a turn of the model to the sender, who was told a part
// of it already, before the run changed hands, was paused, or the model broke
// off: that is not told again.
func (l *loop) teller(task *mesh.Task, told string) *teller {
	t := &teller{told: told}
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

// restartEvent says that the text of this turn begins anew: what was streamed
// of it before is void.
type restartEvent struct {
	Restart bool   `json:"restart"`
	Text    string `json:"text"`
}

// teller tells the text of a turn that may have been told in part. What is
// generated again is matched with it and kept back as long as they agree; from
// the first difference on the turn is told anew, and said to be.
type teller struct {
	onDelta func(model.Delta) error // of the turn from its beginning; nil where nobody wants a stream
	onRest  func(model.Delta) error // of what comes after the part that was told, which is why the turn is no JSON answer
	heard   bool                    // the model has begun to answer

	has     strings.Builder // what the sender has of the turn
	told    string          // what is still to be matched
	matched strings.Builder
	emit    func(string) error
	restart func(string) error
}

// tell tells what comes next.
func (t *teller) tell(text string) error {
	t.has.WriteString(text)
	return t.emit(text)
}

// anew tells the turn from its beginning.
func (t *teller) anew(text string) error {
	t.told = ""
	t.has.Reset()
	t.has.WriteString(text)
	return t.restart(text)
}

func (t *teller) add(text string) error {
	if t.told == "" {
		return t.tell(text)
	}
	rest, longer := strings.CutPrefix(text, t.told)
	switch {
	case longer:
		t.told = ""
		if rest == "" {
			return nil
		}
		return t.tell(rest)
	case strings.HasPrefix(t.told, text):
		t.matched.WriteString(text)
		t.told = t.told[len(text):]
		return nil
	}
	return t.anew(t.matched.String() + text)
}

// end is the end of a turn. More was told than it turned out to be: it is told
// anew.
func (t *teller) end() error {
	if t.told == "" || t.restart == nil {
		return nil
	}
	return t.anew(t.matched.String())
}

package agents

import (
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/mesh"
)

// onDelta streams a turn of the model to the sender, or is nil where nobody
// wants that. What was told of the turn already, before the run changed hands
// or was paused, is not told again; the second function must be called when the
// turn is complete.
func (l *loop) onDelta(task *mesh.Task, told string) (func(model.Delta) error, func() error) {
	if !l.streaming(task) {
		return nil, func() error { return nil }
	}
	t := &teller{told: told, emit: task.EmitText, restart: func(text string) error {
		return emit(task, restartEvent{Restart: true, Text: text})
	}}
	if !l.wantsJSON(task) {
		return func(d model.Delta) error { return t.add(d.Text) }, t.end
	}
	f := proseFilter{emit: t.add}
	return func(d model.Delta) error { return f.add(d.Text) }, t.end
}

// onRest streams what comes after the part of a turn that was told, which is
// why the turn is no JSON answer.
func (l *loop) onRest(task *mesh.Task) func(model.Delta) error {
	if !l.streaming(task) {
		return nil
	}
	return func(d model.Delta) error { return task.EmitText(d.Text) }
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
	told    string // what is still to be matched
	matched strings.Builder
	emit    func(string) error
	restart func(string) error
}

func (t *teller) add(text string) error {
	if t.told == "" {
		return t.emit(text)
	}
	rest, longer := strings.CutPrefix(text, t.told)
	switch {
	case longer:
		t.told = ""
		if rest == "" {
			return nil
		}
		return t.emit(rest)
	case strings.HasPrefix(t.told, text):
		t.matched.WriteString(text)
		t.told = t.told[len(text):]
		return nil
	}
	t.told = ""
	return t.restart(t.matched.String() + text)
}

// end is the end of a turn. More was told than it turned out to be: it is told
// anew.
func (t *teller) end() error {
	if t.told == "" {
		return nil
	}
	t.told = ""
	return t.restart(t.matched.String())
}

package agents

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// A document may come from anywhere. Whatever is in it, the run ends, or waits,
// or is refused; what is sent to the model is a conversation that the port
// accepts.
func FuzzRestore(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "checkpoints", "*", "*.json"))
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"conversation":[{"role":"tool","content":""},{"role":"user","content":"x"}],"pending_tool_calls":[{"id":"","tool_name":"","arguments":{}}]}`))
	f.Add([]byte(`{"conversation":[{"role":"user","content":"x"},{"role":"robot","content":"y"}]}`))
	w := newWorkbench(f, Options{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		cp, err := state.Codec{}.Decode(raw)
		if err != nil {
			cp = new(state.Checkpoint)
			if jsonv2.Unmarshal(raw, &cp.Doc) != nil {
				return
			}
			cp.Doc.Extensions = nil
		}
		fresh := w.begin()
		var asked []*model.Request
		l := *w.loop
		l.model = model.Func(func(_ context.Context, req *model.Request, _ func(model.Delta) error) (*model.Response, error) {
			asked = append(asked, req)
			return &model.Response{Message: model.Assistant("fine"), Finish: model.FinishStop}, nil
		})
		cp.Doc.RunID, cp.Doc.AgentID = fresh.Doc.RunID, fresh.Doc.AgentID
		cp.Mesh.Entity, cp.Mesh.TaskID, cp.Mesh.Format = fresh.Mesh.Entity, fresh.Mesh.TaskID, fresh.Mesh.Format
		_, err = l.work(t.Context(), w.task, &run{journal: sink{}, input: w.task.Envelope.Payload}, cp)
		var known *envelope.Error
		if err != nil && !errors.Is(err, errParked) && !errors.As(err, &known) {
			return // what cannot be read is an error without a code
		}
		for _, r := range asked {
			if err := r.Validate(); err != nil {
				t.Errorf("the model was asked what it cannot be: %v", err)
			}
		}
	})
}

// sink is a journal that makes every change and keeps none.
type sink struct{ live }

func (sink) Commit(_ context.Context, _ state.Step, change func(*state.Checkpoint) error) error {
	if change == nil {
		return nil
	}
	return change(new(state.Checkpoint))
}

func (sink) Park(_ context.Context, _ aaif.RunStatus, change func(*state.Checkpoint) error) error {
	return errors.Join(change(new(state.Checkpoint)), errParked)
}

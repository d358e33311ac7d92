package bounds

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

func TestTheTreeOfAHopIsReadOnceAndKeepsItsBounds(t *testing.T) {
	got, err := ReadTree(json.RawMessage(`{"root":"r","depth":2,"max_depth":3,"max_tasks":4,"max_iterations":5,"tokens":6,"usd":7}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.Root != "r" || got.Depth != 2 || got.MaxDepth != 3 || got.MaxTasks != 4 || got.MaxIterations != 5 || got.Tokens != 6 || got.USD == 0 {
		t.Errorf("got %+v", got)
	}
	const tooLow, mistyped = ": a bound must be greater than 0", " is not of the right type"
	for bad, want := range map[string]string{
		`{"max_depth":0}`: "requires.tree.max_depth" + tooLow, `{"max_tasks":0}`: "requires.tree.max_tasks" + tooLow, `{"max_iterations":0}`: "requires.tree.max_iterations" + tooLow,
		`{"tokens":0}`: "requires.tree.tokens" + tooLow, `{"usd":0}`: "requires.tree.usd" + tooLow, `{"max_depth":-1}`: "requires.tree.max_depth" + tooLow, `{"usd":-1}`: "requires.tree.usd" + tooLow,
		`7`: "it must be an object", `{"depth":"x"}`: "requires.tree.depth" + mistyped, `{"usd":"1"}`: "requires.tree.usd" + mistyped, `{"depth":-1}`: "is not valid",
	} {
		if tree, err := ReadTree(json.RawMessage(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", bad, tree, err)
		}
	}
	if _, err := ReadTree(json.RawMessage(`{"max_depth":2.5}`)); err == nil || strings.Contains(err.Error(), "greater than 0") {
		t.Errorf("half a hop: %v", err)
	}
	if tree, err := ReadTree(json.RawMessage(`{"max_depth":3,"MAX_DEPTH":0,"Depth":2}`)); err != nil || tree.MaxDepth != 3 || tree.Depth != 0 {
		t.Errorf("names in another case were taken for bounds: %+v, %v", tree, err)
	}
	// Names and lists of a stranger are bounded: hops and records repeat them.
	list := func(n int, item string) string { return "[" + strings.Repeat(item+",", n-1) + item + "]" }
	for tree, ok := range map[string]bool{
		`{"root":"` + strings.Repeat("r", wire.MaxName) + `"}`: true, `{"root":"` + strings.Repeat("r", wire.MaxName+1) + `"}`: false,
		`{"key":"` + strings.Repeat("k", maxTreeKey) + `"}`: true, `{"key":"` + strings.Repeat("k", maxTreeKey+1) + `"}`: false,
		`{"teams":` + list(maxTeams, `{"task":"t","max_iterations":1}`) + `}`: true, `{"teams":` + list(maxTeams+1, `{"task":"t","max_iterations":1}`) + `}`: false,
		`{"teams":[{"task":"t","max_iterations":0}]}`: false, `{"teams":[{"task":"","max_iterations":1}]}`: false,
		`{"waiting":` + list(maxAbove, `{"entity":"e","task":"t"}`) + `}`: true, `{"waiting":` + list(maxAbove+1, `{"entity":"e","task":"t"}`) + `}`: false,
	} {
		if _, err := ReadTree(json.RawMessage(tree)); (err == nil) != ok {
			t.Errorf("%.60s… of %d bytes: %v", tree, len(tree), err)
		}
	}
	for _, none := range []json.RawMessage{nil, json.RawMessage(`null`)} {
		if tree, err := ReadTree(none); tree != nil || err != nil {
			t.Errorf("%s: got %+v, %v", none, tree, err)
		}
	}
}

// A task that came too deep is refused, and its agent sends none that would be too deep or in too
// many teams.
func TestAPositionIsWithinItsBounds(t *testing.T) {
	t.Parallel()
	limits, err := Limits{MaxDepth: 2}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	k := NewKeeper(limits, func() Counters { return nil }, slog.New(slog.DiscardHandler))
	join := func(tree string) (*Position, error) {
		p := &Position{}
		return p, p.Join(k, "agent.a", envelope.New(envelope.TypeTask, "human.ada", "agent.a", "agent.a.run", json.RawMessage(`{}`)), json.RawMessage(tree))
	}
	for tree, ok := range map[string]bool{`{"depth":2}`: true, `{"depth":3}`: false, `{"depth":2,"max_depth":1}`: false, `{"depth":3,"max_depth":9}`: false} {
		if _, err := join(tree); (err == nil) != ok {
			t.Errorf("%s: %v", tree, err)
		}
	}
	inherit := func(tree string, bound bool) error {
		p, err := join(tree)
		if err != nil {
			t.Fatal(err)
		}
		if bound {
			p.BoundTurns("task", 5)
		}
		return p.Inherit(map[string]json.RawMessage{}, false, func() time.Time { return time.Time{} })
	}
	full := `{"teams":[` + strings.Repeat(`{"task":"t","max_iterations":1},`, maxTeams-1) + `{"task":"t","max_iterations":1}]}`
	for _, tt := range []struct {
		tree      string
		bound, ok bool
	}{{`{"depth":1}`, true, true}, {`{"depth":2}`, false, false}, {full, false, true}, {full, true, false}} {
		if err := inherit(tt.tree, tt.bound); (err == nil) != tt.ok {
			t.Errorf("%.30s, with a team of its own %v: %v", tt.tree, tt.bound, err)
		}
	}
	for _, l := range []Limits{{MaxDepth: -1}, {MaxTasks: -1}, {MaxIterations: -1}, {Tokens: -1}, {USD: -1}} {
		if _, err := l.WithDefaults(); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
}

// spent are counters that a tree has used, or that cannot be reached.
type spent struct {
	total int64
	err   error
}

func (s spent) Add(_ context.Context, _ int64, _, kind string, _ ...string) (int64, error) {
	if kind != CountUSD {
		return 0, s.err
	}
	return s.total, s.err
}

// A tree that has used up what it may cost goes no further, and neither does one of which that
// cannot be known.
func TestATreeStopsAtWhatItMayCost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		spent
		code envelope.Code
	}{{spent{6, nil}, ""}, {spent{7, nil}, envelope.CodeBudget}, {spent{0, errors.New("no answer")}, envelope.CodeUnavailable}} {
		limits, err := Limits{USD: 7}.WithDefaults()
		if err != nil {
			t.Fatal(err)
		}
		k := NewKeeper(limits, func() Counters { return tt.spent }, slog.New(slog.DiscardHandler))
		p := &Position{}
		if err := p.Join(k, "agent.a", envelope.New(envelope.TypeTask, "human.ada", "agent.a", "agent.a.run", json.RawMessage(`{}`)), nil); err != nil {
			t.Fatal(err)
		}
		err = p.CheckBudget(t.Context())
		var e *envelope.Error
		if errors.As(err, &e); tt.code == "" && err != nil || tt.code != "" && (e == nil || e.Code != tt.code) {
			t.Errorf("%+v: %v, want %q", tt.spent, err, tt.code)
		}
	}
}

package envelope_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// Finding 7 of the security review: keys are compared by their decoded names.
func TestReadRequiresDecodesNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		requires string
		known    envelope.Requirements
		others   envelope.Members
		fault    string
	}{
		{``, envelope.Requirements{}, nil, ""},
		{`{}`, envelope.Requirements{}, nil, ""},
		{`{"timeout_ms":5}`, envelope.Requirements{Timeout: 5 * time.Millisecond}, nil, ""},
		{`{"tree":{"a":1},"stream":true,"handoff":false,"x":null}`, envelope.Requirements{Stream: true},
			envelope.Members{{Name: "tree", Value: json.RawMessage(`{"a":1}`)}, {Name: "handoff", Value: json.RawMessage(`false`)}}, ""},
		{`{"\u0074ree" : {"a":1} , "strea\u006d":true,"h\u0061ndof\u0066":false}`, envelope.Requirements{Stream: true},
			envelope.Members{{Name: "tree", Value: json.RawMessage(`{"a":1}`)}, {Name: "handoff", Value: json.RawMessage(`false`)}}, ""},
		{`{"Tree":1,"tre\u0065\u0000":2}`, envelope.Requirements{}, envelope.Members{{Name: "Tree", Value: json.RawMessage(`1`)}, {Name: "tree\x00", Value: json.RawMessage(`2`)}}, ""},
		{`{"stream":1,"tree":2}`, envelope.Requirements{}, envelope.Members{{Name: "tree", Value: json.RawMessage(`2`)}}, "requires.stream must be true or false"},
		{`{"tree":1,"tre\u0065":2}`, envelope.Requirements{}, envelope.Members{{Name: "tree", Value: json.RawMessage(`1`)}}, `requires has the name "tree" twice`},
		{`{"timeout_ms":null,"timeout\u005fms":2}`, envelope.Requirements{}, nil, `requires has the name "timeout_ms" twice`},
	} {
		e := &envelope.Envelope{}
		if tt.requires != "" {
			e.Requires = json.RawMessage(tt.requires)
		}
		known, others, err := e.ReadRequires()
		if known != tt.known || !reflect.DeepEqual(others, tt.others) {
			t.Errorf("%s: %+v and %q, want %+v and %q", tt.requires, known, others, tt.known, tt.others)
		}
		var coded *envelope.Error
		if tt.fault == "" && err != nil || tt.fault != "" && (!errors.As(err, &coded) || coded.Code != envelope.CodeRequires || coded.Message != tt.fault) {
			t.Errorf("%s: error %v, want %q", tt.requires, err, tt.fault)
		}
		if again, err2 := e.Requirements(); again != known || (err == nil) != (err2 == nil) {
			t.Errorf("%s: Requirements differs: %+v, %v", tt.requires, again, err2)
		}
		for _, m := range tt.others {
			if got := others.Get(m.Name); string(got) != string(m.Value) {
				t.Errorf("%s: Get(%q) is %s", tt.requires, m.Name, got)
			}
		}
		if others.Get("tre") != nil {
			t.Errorf("%s: found what is not there", tt.requires)
		}
	}
}

// Reading an envelope without constraints, or with the usual ones, allocates nothing.
func TestReadRequiresAllocatesForOtherKeysOnly(t *testing.T) {
	for requires, most := range map[string]float64{"": 0, `{"timeout_ms":30000}`: 0, `{"timeout_ms":30000,"stream":true,"evidence":false}`: 0, `{"timeout_ms":30000,"tree":{"depth":1}}`: 2} {
		e := &envelope.Envelope{}
		if requires != "" {
			e.Requires = json.RawMessage(requires)
		}
		if n := testing.AllocsPerRun(100, func() { e.ReadRequires() }); n > most && !raceEnabled {
			t.Errorf("%s: %v allocations, want at most %v", requires, n, most)
		}
	}
}

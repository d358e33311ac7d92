package calls

import (
	"encoding/json"
	"testing"
)

func TestMembersAreEncodedAsJSONEncodesThem(t *testing.T) {
	for _, members := range []map[string]json.RawMessage{
		{},
		{"tree": json.RawMessage(`{"depth":1}`)},
		{"b": json.RawMessage(`[1,2]`), `a "quoted" name`: json.RawMessage(`"x"`), "c": nil},
	} {
		want, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		if got := objectOf(members); string(got) != string(want) {
			t.Errorf("got %s, want %s", got, want)
		}
		object := objectOf(members)
		before := string(object)
		more := moreMember(object, "timeout_ms", []byte("7"))
		var read map[string]json.RawMessage
		if err := json.Unmarshal(more, &read); err != nil || len(read) != len(members)+1 || string(read["timeout_ms"]) != "7" {
			t.Errorf("one more member: %s, %v", more, err)
		}
		if string(object) != before {
			t.Errorf("the object was changed: %s", object)
		}
	}
}

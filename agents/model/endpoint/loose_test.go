package endpoint_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

func TestDecodeLeavesOutWhatIsOfAnotherType(t *testing.T) {
	t.Parallel()
	type inner struct {
		Name  endpoint.Text
		Count endpoint.Count
	}
	type doc struct {
		List []inner
		One  inner
		Raw  json.RawMessage
	}
	for text, want := range map[string]doc{
		`{"list":[{"name":"a","count":1},{"name":7,"count":"8"}],"one":{"name":{"x": [1]},"count":2.9},"raw":null}`: {
			List: []inner{{"a", 1}, {"7", 8}}, One: inner{`{"x": [1]}`, 2}, Raw: json.RawMessage("null")},
		`{"list":"none","one":{"name":"b","count":[]}}`:    {One: inner{"b", 0}},
		`{"list":[5,{"name":true}],"one":[]}`:              {List: []inner{{}, {Name: "true"}}},
		`{"list":null,"one":{"name":null,"count":null}}`:   {},
		`{"one":{"count":1e300}}`:                          {},
		`{"one":{"count":"many"},"list":[{"count":-1e3}]}`: {List: []inner{{"", -1000}}},
		`null`: {},
	} {
		var got doc
		if err := endpoint.Decode([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{``, `{`, `[]`, `"x"`, `7`, `{"one":{"name":"a"}`, `{} {}`} {
		if err := endpoint.Decode([]byte(text), new(doc)); err == nil {
			t.Errorf("%q was decoded", text)
		}
	}
}

package envelope

import (
	"reflect"
	"strings"
	"testing"
)

// The order of the fields and the white space between them decide which path the parser
// takes; they must not change the result.
func TestOrderAndSpaceDoNotMatter(t *testing.T) {
	t.Parallel()
	members := []string{`"v":"1"`, `"id":"01JFB2R1JZKQ9V3K8W8Y9W1F2A"`, `"ts":"2025-12-14T03:45:12Z"`, `"type":"task"`, `"from":"agent.manager"`,
		`"to":"agent.b\u0061ckup"`, `"intent":"ops.check"`, `"corr":"01JFB2QX0K8X5K6ZJ9G2C0C1MW"`, `"reply_to":null`, `"trace":{"trace_id":"9f3c","span_id":"a12b"}`,
		`"priority":"high"`, `"requires":{"timeout_ms":30000}`, `"payload":{"window":[1,"24 h"]}`, `"sig":null`, `"x":{"y":1}`}
	want, err := Parse([]byte("{" + strings.Join(members, ",") + "}"))
	if err != nil {
		t.Fatal(err)
	}
	for shift := range members {
		rotated := append(append([]string(nil), members[shift:]...), members[:shift]...)
		for _, space := range []string{"", " ", "\n\t", "\r\n  "} {
			var spaced []string
			for i, m := range rotated {
				if i%3 != 2 { // every third member stays compact, as programs write it
					name, value, _ := strings.Cut(m, ":")
					m = space + name + space + ":" + space + value + space
				}
				spaced = append(spaced, m)
			}
			text := "{" + strings.Join(spaced, ",") + "}"
			got, err := Parse([]byte(text))
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %+v, want %+v", text, got, want)
			}
		}
		again := "{" + strings.Join(append(rotated, rotated[0]), ",") + "}"
		if _, err := Parse([]byte(again)); err == nil || !strings.Contains(err.Error(), "duplicate name") {
			t.Errorf("%s: %v", again, err)
		}
		for cut := range len(again) - len(rotated[0]) - 2 {
			if _, err := Parse([]byte(again[:cut])); err == nil {
				t.Fatalf("%s: accepted", again[:cut])
			}
		}
	}
}

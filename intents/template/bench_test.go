package template_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/intents/template"
)

// twenty is a template with twenty keys besides other, of all types, half of them with a
// value_schema, and a payload for it.
func twenty(tb testing.TB) (*template.Template, json.RawMessage) {
	tb.Helper()
	t := &template.Template{SchemaID: "bench_v1", Scenario: "bench"}
	var members []string
	for i := range 20 {
		k := template.Key{Name: fmt.Sprintf("key_number_%d", i), Required: i%2 == 0, Description: "A value. Example: 'it' -> it."}
		value := ""
		switch i % 5 {
		case 0:
			k.Type, k.Value, value = template.String, json.RawMessage(`{"enum":["economy","business","first"]}`), `"business"`
		case 1:
			k.Type, k.Value, value = template.Integer, json.RawMessage(`{"minimum":1,"maximum":9}`), `4`
		case 2:
			k.Type, value = template.String, `"Lisbon and around"`
		case 3:
			k.Type, value = template.Boolean, `true`
		case 4:
			k.Type, k.Value, value = template.Number, json.RawMessage(`{"minimum":0}`), `12.5`
		}
		t.Keys = append(t.Keys, k)
		members = append(members, fmt.Sprintf(`"%s":%s`, k.Name, value))
	}
	return t, json.RawMessage("{" + strings.Join(members, ",") + "}")
}

func BenchmarkCheck(b *testing.B) {
	t, payload := twenty(b)
	form, err := template.NewForm(t, template.FormOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for name, payload := range map[string]json.RawMessage{
		"20keys":  payload,
		"refused": json.RawMessage(strings.Replace(string(payload), `"business"`, `"third"`, 1)),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := form.Check(payload); (err != nil) != (name == "refused") {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	t, _ := twenty(b)
	raw, err := json.Marshal(t)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := template.Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}

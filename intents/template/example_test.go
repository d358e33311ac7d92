package template_test

import (
	"encoding/json"
	"fmt"

	"github.com/aeemesh/aeemesh/intents/template"
)

// An agent publishes a template, and checks payloads by its form.
func Example() {
	t, err := template.Parse([]byte(`{
		"schema_id": "table_booking_v1",
		"scenario": "table_booking",
		"keys": [
			{"key_name": "day", "key_type": "string", "required": true, "value_schema": {"format": "date"},
			 "semantic_description": "The day of the visit as YYYY-MM-DD. Example: 'first of May 2031' -> '2031-05-01'."},
			{"key_name": "guests", "key_type": "integer", "required": false, "default_value": 2, "value_schema": {"minimum": 1, "maximum": 12},
			 "semantic_description": "How many people come. Example: 'the four of us' -> 4."}
		]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	form, err := template.NewForm(t, template.FormOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	filled, err := form.Check(json.RawMessage(`{"day": "2031-05-01", "terrace": "yes"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(filled.Values))
	fmt.Println(filled.Other)

	_, err = form.Check(json.RawMessage(`{"guests": 40}`))
	fmt.Println(err)
	// Output:
	// {"day":"2031-05-01","guests":2,"other":"terrace: yes"}
	// [terrace: yes]
	// the payload does not fit the template table_booking_v1:
	//   day is missing; add it: a string that fits {"format":"date"} (required). day: The day of the visit as YYYY-MM-DD. Example: 'first of May 2031' -> '2031-05-01'.
	//   guests must be at most 12; send an integer that fits {"minimum":1,"maximum":12} (optional). guests: How many people come. Example: 'the four of us' -> 4.
}

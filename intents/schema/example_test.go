package schema_test

import (
	"encoding/json"
	"fmt"

	"github.com/aeemesh/aeemesh/intents/schema"
)

func ExampleCompile() {
	_, err := schema.Compile(json.RawMessage(`{"properties": {"user": {"$ref": "file:///etc/user.json"}}}`))
	fmt.Println(err)
	// Output: schema is refused: /properties/user/$ref: refers to another document, "file:///etc/user.json"; schemas are never loaded from disk or network: put it under $defs ($ref)
}

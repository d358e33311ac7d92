package calls

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/aeemesh/aeemesh/envelope"
)

// withMember returns a copy of a JSON object with one member set. The object must be valid.
func withMember(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	members := map[string]json.RawMessage{}
	if object != nil {
		_ = json.Unmarshal(object, &members)
	}
	members[name] = value
	return objectOf(members)
}

// moreMember returns a copy of a JSON object with one more member, a name that the object does
// not have. The object must be one that objectOf has made.
func moreMember(object json.RawMessage, name string, value []byte) json.RawMessage {
	out := make([]byte, 0, len(object)+len(name)+len(value)+4)
	if out = append(out, object[:len(object)-1]...); len(out) > 1 {
		out = append(out, ',')
	}
	out = append(envelope.AppendString(out, name), ':')
	return append(append(out, value...), '}')
}

// objectOf encodes members, whose values are valid JSON. Unlike json.Marshal it does not check the
// values, which this package has encoded itself.
func objectOf(members map[string]json.RawMessage) json.RawMessage {
	object := json.RawMessage("{}")
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := members[name]
		if value == nil {
			value = json.RawMessage("null")
		}
		object = moreMember(object, name, value)
	}
	return object
}

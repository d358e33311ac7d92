package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// received converts a message from a server so that the SDK decodes it without loss.
func received(message []byte) []byte { return ownCodes(keepExact(readable(message))) }

// readable replaces the parts of a tool's result that the SDK cannot read, such as one of an
// unknown type, by a text: otherwise the SDK would refuse the whole answer.
func readable(message []byte) []byte {
	var m, result map[string]json.RawMessage
	var parts []json.RawMessage
	if !bytes.Contains(message, []byte(`"content"`)) || json.Unmarshal(message, &m) != nil || json.Unmarshal(m["result"], &result) != nil ||
		json.Unmarshal(result["content"], &parts) != nil {
		return message
	}
	changed := false
	for i, part := range parts {
		if json.Unmarshal(encode(map[string]any{"content": []any{part}}), new(sdk.CallToolResult)) != nil {
			var p struct{ Type string }
			_ = json.Unmarshal(part, &p) // it may be no object
			parts[i] = encode(map[string]string{"type": "text", "text": fmt.Sprintf("(a part of type %q is left out: it cannot be read)", clip.Text(p.Type, 40))})
			changed = true
		}
	}
	if !changed {
		return message
	}
	result["content"] = encode(parts)
	m["result"] = encode(result)
	return encode(m)
}

// ownCodes changes the codes of a server's errors that mean something else to the SDK: it
// would take the first two for the end of the session, and the third for an HTTP failure.
// JSON-RPC leaves all of -32000 to -32099 to servers (JSON-RPC 2.0, section 5.1).
func ownCodes(message []byte) []byte {
	if !bytes.Contains(message, []byte("-3200")) {
		return message
	}
	var m, failure map[string]json.RawMessage
	if json.Unmarshal(message, &m) != nil || json.Unmarshal(m["error"], &failure) != nil {
		return message
	}
	switch string(failure["code"]) {
	case "-32003", "-32004", "-32005":
		failure["code"] = json.RawMessage("-32000")
		m["error"] = encode(failure)
		return encode(m)
	}
	return message
}

// exactKey is the member of _meta that carries a result's structured content as text, from the
// wire to [structured]. For a schema of a tool, the member is exactKey, a slash and the schema's
// name.
const exactKey = "aeemesh/exact"

// keepExact adds the exact text of structured content, and of schemas with long numbers, to a
// message. The SDK decodes numbers to floats, which changes the id 9007199254740993 to
// 9007199254740992.
func keepExact(message []byte) []byte {
	if !bytes.Contains(message, []byte(`structuredContent`)) && !bytes.Contains(message, []byte(`\u`)) && !longNumber.RE().Match(message) {
		return message // the message contains neither the name, in any spelling, nor such a number
	}
	var m, result map[string]json.RawMessage
	if json.Unmarshal(message, &m) != nil || json.Unmarshal(m["result"], &result) != nil {
		return message
	}
	changed := keepSchemas(result)
	if content, ok := result["structuredContent"]; ok {
		addExact(result, exactKey, content)
		changed = true
	}
	if !changed {
		return message
	}
	m["result"] = encode(result)
	return encode(m)
}

// longNumber matches what may be a number that a float does not hold.
var longNumber = pattern.Of(`[0-9]{16}`)

// keepSchemas keeps the schemas of a list of tools, and reports whether it changed any.
func keepSchemas(result map[string]json.RawMessage) (changed bool) {
	var tools []map[string]json.RawMessage
	if json.Unmarshal(result["tools"], &tools) != nil {
		return false
	}
	for _, t := range tools {
		for _, name := range []string{"inputSchema", "outputSchema"} {
			if schema, ok := t[name]; ok && longNumber.RE().Match(schema) {
				addExact(t, exactKey+"/"+name, schema)
				changed = true
			}
		}
	}
	if changed {
		result["tools"] = encode(tools)
	}
	return changed
}

// addExact puts a text into an object's _meta.
func addExact(object map[string]json.RawMessage, name string, text json.RawMessage) {
	var meta map[string]json.RawMessage
	if err := json.Unmarshal(object["_meta"], &meta); err != nil || meta == nil {
		meta = make(map[string]json.RawMessage)
	}
	meta[name] = encode(string(text))
	object["_meta"] = encode(meta)
}

// encode encodes values that can always be encoded.
func encode(v any) json.RawMessage {
	raw, err := envelope.EncodeJSON(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return raw
}

package mcp

import (
	"bytes"
	"encoding/json"
)

// exactKey is the member of _meta that carries a result's structured content as
// text, from the wire to [structured].
const exactKey = "aeemesh/exact"

// keepExact adds the exact text of structured content to a message. The SDK
// decodes numbers to floats, which changes the id 9007199254740993 to
// 9007199254740992.
func keepExact(message []byte) []byte {
	if !bytes.Contains(message, []byte(`structuredContent`)) && !bytes.Contains(message, []byte(`\u`)) {
		return message // the message does not contain the name, in any spelling
	}
	var m, result, meta map[string]json.RawMessage
	if json.Unmarshal(message, &m) != nil || json.Unmarshal(m["result"], &result) != nil {
		return message
	}
	content, ok := result["structuredContent"]
	if !ok {
		return message
	}
	if err := json.Unmarshal(result["_meta"], &meta); err != nil || meta == nil {
		meta = make(map[string]json.RawMessage)
	}
	meta[exactKey] = encode(string(content))
	result["_meta"] = encode(meta)
	m["result"] = encode(result)
	return encode(m)
}

// encode encodes values that can always be encoded.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimSpace(b.Bytes())
}

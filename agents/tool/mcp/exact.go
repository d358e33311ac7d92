package mcp

import (
	"bytes"
	"encoding/json"
)

// exactKey is where a result's structured content stands as text, in _meta,
// between the wire and [structured].
const exactKey = "aeemesh/exact"

// keepExact adds to a message with structured content its exact text. The SDK
// decodes it into floats, which makes 9007199254740992 of the id
// 9007199254740993.
func keepExact(message []byte) []byte {
	if !bytes.Contains(message, []byte(`structuredContent`)) && !bytes.Contains(message, []byte(`\u`)) {
		return message // the name is not there, nor what it could be spelled with
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

// encode writes what cannot fail to be written.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimSpace(b.Bytes())
}

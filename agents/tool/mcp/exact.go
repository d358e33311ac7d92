package mcp

import (
	"bytes"
	"encoding/json"
)

// received converts a message from a server to one that the SDK decodes as it is meant.
func received(message []byte) []byte { return ownCodes(keepExact(message)) }

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

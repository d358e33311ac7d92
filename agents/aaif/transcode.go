package aaif

import "fmt"

// JSONToCBOR writes one JSON value as CBOR in the core deterministic encoding
// (RFC 8949, section 4.2.1), under the rules of [Parse] for JSON text, whatever
// kind of document it is. maxDepth bounds the nesting like Options.MaxDepth. A
// number with more digits than a double or a 64-bit integer holds is refused.
func JSONToCBOR(text []byte, maxDepth int) ([]byte, error) {
	tree, problems := decodeJSON(text, Options{MaxDepth: maxDepth}.withDefaults().MaxDepth)
	if problems != nil {
		return nil, &Error{Problems: problems}
	}
	data, err := encodeCBOR(tree)
	if err != nil {
		return nil, fmt.Errorf("aaif: %w", err)
	}
	return data, nil
}

// CBORToJSON writes one CBOR item as JSON text, under the rules of [Parse] for
// CBOR whatever kind of document it is. Members are in the order of their
// names.
func CBORToJSON(data []byte, maxDepth int) ([]byte, error) {
	text, problem := decodeCBOR(data, Options{MaxDepth: maxDepth}.withDefaults().MaxDepth)
	if problem != nil {
		return nil, &Error{Problems: []Problem{*problem}}
	}
	return text, nil
}

// YAMLToJSON writes one YAML document as JSON text, under the rules of [Parse]
// for YAML: no aliases, no duplicate names, only strings as names. The kind of
// document does not matter.
func YAMLToJSON(text []byte, maxDepth int) ([]byte, error) {
	out, problem := decodeYAML(text, Options{MaxDepth: maxDepth}.withDefaults().MaxDepth, nil)
	if problem != nil {
		return nil, &Error{Problems: []Problem{*problem}}
	}
	return out, nil
}

// YAMLPlaces is [YAMLToJSON] that also says where each value stands: place returns
// the line and column, from 1, of the value that a JSON pointer names, and 0, 0 where
// there is none.
func YAMLPlaces(text []byte, maxDepth int) (out []byte, place func(pointer string) (line, column int), err error) {
	at := make(map[string]position)
	out, problem := decodeYAML(text, Options{MaxDepth: maxDepth}.withDefaults().MaxDepth, at)
	if problem != nil {
		return nil, nil, &Error{Problems: []Problem{*problem}}
	}
	return out, func(pointer string) (line, column int) { return at[pointer].line, at[pointer].column }, nil
}

// JSONPlaces is [YAMLPlaces] for a JSON text. The place of a member is that of its name. Each call
// of place reads the text.
func JSONPlaces(text []byte) (place func(pointer string) (line, column int)) {
	return func(pointer string) (line, column int) {
		at := map[string]position{pointer: {}}
		jsonPositions(text, at)
		return at[pointer].line, at[pointer].column
	}
}

package model

import "encoding/json"

// Piece is a part of an assistant's turn in the provider's order: text, a tool
// call, or data that only the provider understands, such as a signed thought.
// Exactly one of the three is set.
type Piece struct {
	Text string
	Call *ToolCall
	Raw  json.RawMessage // a JSON object
}

// written is the stored form of pieces. It only refers to text and calls, because the message
// contains them.
type written struct {
	Model  string         `json:"model"` // the model that was requested
	Pieces []writtenPiece `json:"pieces"`
}

type writtenPiece struct {
	Text int             `json:"text,omitempty"` // bytes
	Call bool            `json:"call,omitempty"`
	Raw  json.RawMessage `json:"raw,omitempty"`
}

// PackPieces encodes a turn's pieces for Message.Provider, for the named
// adapter and the requested model. It returns nil if there are only text and
// calls. [UnpackPieces] reverses it.
func PackPieces(adapter, model string, pieces []Piece) json.RawMessage {
	w := written{Model: model}
	raw := false
	for _, p := range pieces {
		switch {
		case p.Raw != nil:
			raw = true
			w.Pieces = append(w.Pieces, writtenPiece{Raw: p.Raw})
		case p.Call != nil:
			w.Pieces = append(w.Pieces, writtenPiece{Call: true})
		case p.Text != "":
			w.Pieces = append(w.Pieces, writtenPiece{Text: len(p.Text)})
		}
	}
	if !raw {
		return nil
	}
	packed, err := json.Marshal(map[string]written{adapter: w})
	if err != nil { // a piece that is not JSON is useless
		return nil
	}
	return packed
}

// UnpackPieces returns the pieces of an assistant's message, in the provider's
// order. If the message was not packed by that adapter for that model, or was
// modified since, they are its text and its calls.
func UnpackPieces(adapter, model string, m Message) []Piece {
	if pieces, ok := unpack(adapter, model, m); ok {
		return pieces
	}
	var pieces []Piece
	if m.Content != "" {
		pieces = append(pieces, Piece{Text: m.Content})
	}
	for i := range m.ToolCalls {
		pieces = append(pieces, Piece{Call: &m.ToolCalls[i]})
	}
	return pieces
}

func unpack(adapter, model string, m Message) (pieces []Piece, ok bool) {
	var all map[string]json.RawMessage
	var w written
	if len(m.Provider) == 0 || json.Unmarshal(m.Provider, &all) != nil || json.Unmarshal(all[adapter], &w) != nil || w.Model != model {
		return nil, false
	}
	rest, calls := m.Content, m.ToolCalls
	for _, p := range w.Pieces {
		switch {
		case p.Raw != nil && isObject(p.Raw):
			pieces = append(pieces, Piece{Raw: p.Raw})
		case p.Call && len(calls) > 0:
			pieces = append(pieces, Piece{Call: &calls[0]})
			calls = calls[1:]
		case p.Text > 0 && p.Text <= len(rest):
			pieces = append(pieces, Piece{Text: rest[:p.Text]})
			rest = rest[p.Text:]
		default:
			return nil, false
		}
	}
	return pieces, rest == "" && len(calls) == 0
}

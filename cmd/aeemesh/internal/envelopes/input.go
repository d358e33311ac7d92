package envelopes

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
)

// input is one of the envelopes that a command reads.
type input struct {
	source string // file, or stdin
	line   int    // if there is one per line; else 0
	data   []byte
	cbor   bool
}

func (in input) parse() (*envelope.Envelope, error) {
	if in.cbor {
		return envelope.ParseCBOR(in.data)
	}
	return envelope.Parse(in.data)
}

func (in input) where() string {
	if in.line > 0 {
		return fmt.Sprintf("%s:%d", in.source, in.line)
	}
	return in.source
}

// Each calls do with every envelope of the files, or of stdin, and
// stops at the first invalid one.
func Each(a *session.App, files []string, do func(*envelope.Envelope) error) error {
	n := 0
	err := eachInput(a, files, func(in input) error {
		n++
		e, err := in.parse()
		if err != nil {
			return outcome.Hinted(fmt.Errorf("%s: %w", in.where(), err), "\"aeemesh envelope validate\" reports everything that is wrong.")
		}
		if err := do(e); err != nil {
			return fmt.Errorf("%s: %w", in.where(), err)
		}
		return nil
	})
	if err == nil && n == 0 {
		return errors.New("there is no envelope in the input")
	}
	return err
}

// eachInput splits the files, or stdin if there are none.
func eachInput(a *session.App, files []string, do func(input) error) error {
	if len(files) == 0 {
		files = []string{"-"}
	}
	for _, name := range files {
		data, err := a.ReadWhole(name, maxInput)
		if err != nil {
			return err
		}
		source := name
		if name == "-" {
			source = "stdin"
		}
		if err := split(source, data, do); err != nil {
			return err
		}
	}
	return nil
}

// split splits input: a sequence of CBOR maps, hex of CBOR (one per line), JSON with one envelope
// per line, or JSON values in any layout.
func split(source string, data []byte, do func(input) error) error {
	text := bytes.TrimSpace(data)
	switch {
	case len(text) == 0:
		return nil
	case isCBORMap(data[0]):
		for item := data; len(data) > 0; {
			item, data = envelope.CutCBOR(data)
			if err := do(input{source: source, data: item, cbor: true}); err != nil {
				return err
			}
		}
		return nil
	case text[0] != '{' && isHex(text):
		return eachLine(text, func(n int, line []byte) error {
			raw := make([]byte, hex.DecodedLen(len(line)))
			if _, err := hex.Decode(raw, line); err != nil {
				return fmt.Errorf("%s:%d: %w", source, n, err)
			}
			return do(input{source: source, line: n, data: raw, cbor: true})
		})
	}
	if onePerLine(text) {
		return eachLine(data, func(n int, line []byte) error {
			return do(input{source: source, line: n, data: line})
		})
	}
	return eachValue(source, text, do)
}

// onePerLine reports whether text is lines of JSON, some of which may be broken: the first of
// several lines is a JSON value, or one line is an object although the whole text is not JSON.
func onePerLine(text []byte) bool {
	first, rest, several := bytes.Cut(text, []byte("\n"))
	if !several {
		return false
	}
	if json.Valid(first) {
		return true
	}
	if isSequence(text) {
		return false
	}
	for line := range bytes.Lines(rest) {
		// Objects within a value that spans several lines are indented.
		if line[0] == '{' && json.Valid(line) {
			return true
		}
	}
	return false
}

// isSequence reports whether text is a sequence of JSON values.
func isSequence(text []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(text))
	for {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// eachValue splits a sequence of JSON values. Invalid JSON is passed on
// unchanged, so that the parser reports what is wrong.
func eachValue(source string, text []byte, do func(input) error) error {
	for len(text) > 0 {
		dec := json.NewDecoder(bytes.NewReader(text))
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return do(input{source: source, data: text})
		}
		if err := do(input{source: source, data: raw}); err != nil {
			return err
		}
		text = bytes.TrimSpace(text[dec.InputOffset():])
	}
	return nil
}

func eachLine(data []byte, do func(n int, line []byte) error) error {
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := do(n, line); err != nil {
			return err
		}
	}
	return nil
}

// isCBORMap reports whether a byte starts a CBOR map; JSON text never starts
// with it.
func isCBORMap(b byte) bool { return b >= 0xa0 && b <= 0xbf }

func isHex(text []byte) bool {
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F', c == '\n', c == '\r':
		default:
			return false
		}
	}
	return true
}

package envelope

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/fxamacker/cbor/v2"
	"github.com/go-json-experiment/json/jsontext"
)

// Media types of the two encodings; over NATS the header Content-Type selects the
// encoding.
const (
	ContentJSON = "application/json"
	ContentCBOR = "application/cbor"
)

// cborEncode writes deterministic CBOR (RFC 8949, section 4.2.1).
var cborEncode = func() cbor.EncMode {
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	return mode
}()

// ParseCBOR is [Parse] for an envelope in CBOR: the same fields and rules; names must be
// text strings.
func ParseCBOR(data []byte) (*Envelope, error) { return ParseCBORLimits(data, Limits{}) }

// ParseCBORLimits is [ParseCBOR] with the caller's limits.
func ParseCBORLimits(data []byte, limits Limits) (*Envelope, error) {
	limits = limits.withDefaults()
	limits.MaxBytes = min(limits.MaxBytes, math.MaxInt32) // the decoder counts with int32
	if len(data) > limits.MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(data), limits.MaxBytes)
	}
	text, err := cborToJSON(data, limits.MaxValues+1+int(numFields), limits.MaxDepth)
	if err != nil {
		return nil, invalid(Problem{Rule: RuleCBOR, Message: err.Error()})
	}
	// Numbers and names are longer as JSON than as CBOR; the limit on bytes was checked
	// above.
	limits.MaxBytes = max(limits.MaxBytes, len(text))
	return ParseLimits(text, limits)
}

// AppendCBOR validates e and appends its deterministic CBOR to dst. Names are text
// strings. A number that CBOR's integers and doubles cannot represent exactly is refused
// with [ErrNumber].
func (e *Envelope) AppendCBOR(dst []byte) ([]byte, error) {
	text, err := e.AppendJSON(nil)
	if err != nil {
		return dst, err
	}
	d := jsontext.NewDecoder(bytes.NewReader(text))
	tree, err := readTree(d)
	if err != nil {
		return dst, fmt.Errorf("encode %s as CBOR: %w", e.ID, err)
	}
	data, err := cborEncode.Marshal(tree)
	if err != nil {
		return dst, fmt.Errorf("encode %s as CBOR: %w", e.ID, err)
	}
	return append(dst, data...), nil
}

// readTree decodes one JSON value without changing its numbers: integers become int64,
// uint64 or big.Int, all others the double with exactly their value.
func readTree(d *jsontext.Decoder) (any, error) {
	tok, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case '{':
		m := map[string]any{}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String()
			if m[key], err = readTree(d); err != nil {
				return nil, err
			}
		}
		_, err := d.ReadToken()
		return m, err
	case '[':
		a := []any{}
		for d.PeekKind() != ']' {
			v, err := readTree(d)
			if err != nil {
				return nil, err
			}
			a = append(a, v)
		}
		_, err := d.ReadToken()
		return a, err
	case '"':
		return tok.String(), nil
	case '0':
		return CBORNumber(tok.String())
	case 'n':
		return nil, nil
	}
	return tok.Bool(), nil
}

// CBORNumber converts a number of JSON to the one that is its CBOR: "1" to an integer (int64, uint64 or
// big.Int), "1.0" and "1e0" to a float64, so that decoding the CBOR gives the same kind of number. A
// number that neither represents exactly is refused with [ErrNumber].
func CBORNumber(text string) (any, error) {
	if !strings.ContainsAny(text, ".eE") && text != "-0" {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return i, nil
		}
		if u, err := strconv.ParseUint(text, 10, 64); err == nil {
			return u, nil
		}
		// CBOR's smallest negative integer is -2^64.
		if strings.HasPrefix(text, "-") && len(text) <= len("-18446744073709551616") {
			if n, _ := new(big.Int).SetString(text, 10); n.Cmp(minCBOR) >= 0 {
				return *n, nil
			}
		}
		// An integer out of range becomes a float of the same value, if there is one.
	}
	return exactFloat([]byte(text))
}

var minCBOR = new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(1), 64))

// appendTreeFloat writes a float so that it is read as a float again: 1 as 1.0.
func appendTreeFloat(dst []byte, f float64) []byte {
	if f == 0 && math.Signbit(f) {
		return append(dst, "-0.0"...)
	}
	from := len(dst)
	dst = appendFloat(dst, f)
	if !bytes.ContainsAny(dst[from:], ".e") {
		dst = append(dst, ".0"...)
	}
	return dst
}

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

// Media types of the two encodings; over NATS the header Content-Type chooses.
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

// ParseCBOR is [Parse] for an envelope in CBOR: the same fields and rules,
// names as text strings only.
func ParseCBOR(data []byte) (*Envelope, error) { return ParseCBORLimits(data, Limits{}) }

// ParseCBORLimits is [ParseCBOR] under limits of the caller's.
func ParseCBORLimits(data []byte, limits Limits) (*Envelope, error) {
	limits = limits.withDefaults()
	limits.MaxBytes = min(limits.MaxBytes, math.MaxInt32) // what the decoder counts with
	if len(data) > limits.MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(data), limits.MaxBytes)
	}
	text, err := cborToJSON(data, limits.MaxValues+1+int(numFields), limits.MaxDepth)
	if err != nil {
		return nil, invalid(Problem{Rule: RuleCBOR, Message: err.Error()})
	}
	// The text of numbers and names is longer than their bytes: the limit
	// has been kept already.
	limits.MaxBytes = max(limits.MaxBytes, len(text))
	return ParseLimits(text, limits)
}

// AppendCBOR validates e and appends its deterministic CBOR to dst. Names stay
// text. A number that CBOR's integers and doubles cannot carry unchanged is
// refused with [ErrNumber].
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

// readTree reads one JSON value with its numbers unchanged: integers as
// int64, uint64 or big.Int, all else as the double that is exactly it.
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
		return treeNumber(tok.String())
	case 'n':
		return nil, nil
	}
	return tok.Bool(), nil
}

// treeNumber maps "1" to an integer and "1.0" or "1e0" to a float, so that
// the way back writes the same kind of number.
func treeNumber(text string) (any, error) {
	if !strings.ContainsAny(text, ".eE") && text != "-0" {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return i, nil
		}
		if u, err := strconv.ParseUint(text, 10, 64); err == nil {
			return u, nil
		}
		// CBOR's negative integers reach down to -2^64.
		if strings.HasPrefix(text, "-") && len(text) <= len("-18446744073709551616") {
			if n, _ := new(big.Int).SetString(text, 10); n.Cmp(minCBOR) >= 0 {
				return *n, nil
			}
		}
		// Beyond, an integer is a float of the same value, if there is one.
	}
	return exactFloat([]byte(text))
}

var minCBOR = new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(1), 64))

// appendTreeFloat writes a float so that it reads as a float again: 1 as 1.0.
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

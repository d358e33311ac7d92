package envelope_test

import (
	"math/big"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// number is a JSON number as its exact value and kind: "1" and "1.0" are
// different, "1.0" and "1e0" are not.
type number struct {
	value string
	float bool
}

// exactValue decodes JSON text so that two values are equal exactly where
// nothing was lost between them. The order of members does not count.
func exactValue(tb testing.TB, text []byte) any {
	tb.Helper()
	d := jsontext.NewDecoder(strings.NewReader(string(text)))
	v, err := readExact(d)
	if err != nil {
		tb.Fatalf("%v: %s", err, text)
	}
	return v
}

func readExact(d *jsontext.Decoder) (any, error) {
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
			if m[key], err = readExact(d); err != nil {
				return nil, err
			}
		}
		_, err := d.ReadToken()
		return m, err
	case '[':
		a := []any{}
		for d.PeekKind() != ']' {
			v, err := readExact(d)
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
		text := tok.String()
		r, ok := new(big.Rat).SetString(text)
		if !ok {
			return text, nil
		}
		// An integer beyond what CBOR has becomes a float of the same value.
		magnitude := r.Num()
		if r.Sign() < 0 {
			magnitude = new(big.Int).Not(magnitude) // -n-1, as CBOR has it
		}
		isFloat := strings.ContainsAny(text, ".eE") || text == "-0" || magnitude.BitLen() > 64
		value := r.RatString()
		if r.Sign() == 0 && strings.HasPrefix(text, "-") {
			value = "-0"
		}
		return number{value, isFloat}, nil
	case 't', 'f':
		return tok.Bool(), nil
	}
	return nil, nil
}

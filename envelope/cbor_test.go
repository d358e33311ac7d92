package envelope_test

import (
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/go-json-experiment/json/jsontext"
)

// A number is the exact value of a JSON number and its kind: "1" and "1.0" are different,
// "1.0" and "1e0" are equal.
type number struct {
	value string
	float bool
}

// exactValue decodes JSON text to a value; two texts give equal values only if nothing
// was lost between them. The order of members does not count.
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
		// An integer outside CBOR's range becomes a float of the same value.
		magnitude := r.Num()
		if r.Sign() < 0 {
			magnitude = new(big.Int).Not(magnitude) // -n-1, as CBOR encodes it
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

// TestCBORTakesWhatJSONTakes: an envelope that is within the limits in JSON is within
// them in CBOR.
func TestCBORTakesWhatJSONTakes(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"long array":  "[" + strings.Repeat("1,", 200_000) + "1]",
		"deepest":     strings.Repeat("[", 62) + strings.Repeat("]", 62),
		"deepest map": strings.Repeat(`{"a":`, 62) + "1" + strings.Repeat("}", 62),
		"long text":   `"` + strings.Repeat("é", 100_000) + `"`,
	} {
		e := mustParse(t, strings.Replace(draftTask, `"24h"`, value, 1))
		data, err := e.AppendCBOR(nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		back, err := envelope.ParseCBOR(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !reflect.DeepEqual(exactValue(t, e.Payload), exactValue(t, back.Payload)) {
			t.Errorf("%s: changed on the way", name)
		}
	}
}

// TestNumbersInCBOR: which numbers can be encoded in CBOR, and that value and kind are
// preserved.
func TestNumbersInCBOR(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, out string }{
		{"1", "1"}, {"1.0", "1.0"}, {"1e0", "1.0"}, {"0.10", "0.1"}, {"-0", "-0.0"}, {"0", "0"}, {"1e2", "100.0"}, {"1.5E-3", "0.0015"},
		{"9007199254740993", "9007199254740993"}, {"18446744073709551615", "18446744073709551615"},
		{"-9223372036854775808", "-9223372036854775808"}, {"-9223372036854775809", "-9223372036854775809"},
		{"-18446744073709551616", "-18446744073709551616"}, {"5e-324", "5e-324"}, {"1.7976931348623157e308", "1.7976931348623157e+308"},
		// Outside the range of CBOR's integers, but exact as a double: JavaScript encodes
		// these so.
		{"100000000000000000000", "100000000000000000000.0"}, {"-100000000000000000000", "-100000000000000000000.0"},
		{"18446744073709551617", ""}, {"-18446744073709551617", ""}, {"1e400", ""}, {"-1e400", ""}, {"1e-400", ""},
		{"0.1000000000000000055511151231257827", ""}, {"9007199254740993.0", ""},
	} {
		e := mustParse(t, strings.Replace(draftTask, `"24h"`, tt.in, 1))
		data, err := e.AppendCBOR(nil)
		if tt.out == "" {
			if !errors.Is(err, envelope.ErrNumber) || data != nil {
				t.Errorf("%s: got %x, %v; want envelope.ErrNumber", tt.in, data, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		back, err := envelope.ParseCBOR(data)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if want := `{"cluster":"node.lan","window":` + tt.out + `}`; string(back.Payload) != want {
			t.Errorf("%s: got %s, want %s", tt.in, back.Payload, want)
		}
	}
}

// TestCBORIsDeterministic: neither the order of members nor their spelling changes the
// bytes.
func TestCBORIsDeterministic(t *testing.T) {
	t.Parallel()
	a, err := mustParse(t, draftTask).AppendCBOR([]byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	turned := strings.Replace(draftTask, `{"cluster":"node.lan","window":"24h"}`, "{ \"window\":\"\\u00324h\",\n\"cluster\":\"node.lan\"}", 1)
	b, err := mustParse(t, turned).AppendCBOR([]byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) || !strings.HasPrefix(string(a), "before") {
		t.Errorf("got\n%x\n%x", a, b)
	}
	back, err := envelope.ParseCBOR(a[len("before"):])
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.AppendCBOR(nil)
	if err != nil || string(again) != string(a[len("before"):]) {
		t.Errorf("CBOR to JSON and back (%v):\n%x\n%x", err, a, again)
	}
}

func TestCBORLimits(t *testing.T) {
	t.Parallel()
	data, err := mustParse(t, draftTask).AppendCBOR(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := envelope.ParseCBORLimits(data, envelope.Limits{MaxBytes: len(data)}); err != nil {
		t.Error(err)
	}
	if _, err := envelope.ParseCBORLimits(data, envelope.Limits{MaxBytes: len(data) - 1}); !errors.Is(err, envelope.ErrTooLarge) {
		t.Errorf("got %v, want envelope.ErrTooLarge", err)
	}
	var invalid *envelope.InvalidError
	for _, depth := range []int{1, 2, 3} {
		_, err := envelope.ParseCBORLimits(data, envelope.Limits{MaxDepth: depth})
		if refused := errors.As(err, &invalid); refused != (depth < 2) {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
}

// Finding 10 of the security review: a message with more values than an envelope may have
// is refused before anything is allocated for it; any other costs its text and its index.
func TestCBORIsBoundedBeforeItIsDecoded(t *testing.T) {
	for name, value := range hostileValues() {
		data := withPayload(append([]byte{0xa1, 0x61, 'x'}, value[1]...))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := envelope.ParseCBOR(data)
		runtime.ReadMemStats(&after)
		refused := name == "empty maps" || name == "integers" || name == "maps of 17"
		if (err != nil) != refused {
			t.Errorf("%s: %v", name, err)
		}
		bytes, allocations := after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
		if refused && (bytes > 16<<10 || allocations > 100) {
			t.Errorf("%s: %d bytes in %d allocations for what is refused", name, bytes, allocations)
		}
		// About 20 times, and more under the race detector, which makes pools drop their
		// items.
		if most := uint64(40 * len(data)); bytes > most || allocations > 1000 {
			t.Errorf("%s: %d bytes in %d allocations for a message of %d", name, bytes, allocations, len(data))
		}
	}
}

// The limit on the number of values is the same for both encodings, and for sending.
func TestValuesAreBounded(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 5, envelope.DefaultMaxValues} {
		n := limit
		if n == 0 {
			n = envelope.DefaultMaxValues
		}
		n -= 3 // x, the list and the pair's first value are three more
		fits := strings.Replace(draftTask, `{"timeout_ms":30000,"evidence":true,"human_approval":false}`, `{}`, 1)
		fits = strings.Replace(fits, `{"trace_id":"9f3c","span_id":"a12b"}`, `null`, 1)
		fits = strings.Replace(fits, `{"cluster":"node.lan","window":"24h"}`, `{"x":[`+strings.Repeat("1,", n-1)+`1],"y":{"z":7}}`, 1)
		more := strings.Replace(fits, `"z":7`, `"z":7,"a":1`, 1)
		limits := envelope.Limits{MaxValues: limit}
		e, err := envelope.ParseLimits([]byte(fits), limits)
		if err != nil {
			t.Fatalf("limit %d: %v", limit, err)
		}
		data, err := e.AppendCBOR(nil)
		if err != nil {
			t.Fatalf("limit %d: what was read cannot be sent: %v", limit, err)
		}
		if _, err := envelope.ParseCBORLimits(data, limits); err != nil {
			t.Errorf("limit %d, CBOR: %v", limit, err)
		}
		var bad *envelope.InvalidError
		if _, err := envelope.ParseLimits([]byte(more), limits); !errors.As(err, &bad) || bad.Problems[0].Rule != envelope.RuleJSON {
			t.Errorf("limit %d, one more: %v", limit, err)
		}
		e.Payload = json.RawMessage(strings.Replace(string(e.Payload), `"z":7`, `"z":7,"a":1`, 1))
		data, err = e.AppendCBOR(nil)
		if limit != 5 { // for sending, the default limit holds
			if !errors.As(err, &bad) {
				t.Errorf("limit %d, one more is sent: %v", limit, err)
			}
		} else if _, err := envelope.ParseCBORLimits(data, limits); !errors.As(err, &bad) {
			t.Errorf("limit %d, one more in CBOR: %v", limit, err)
		}
	}
}

// TestHostileCBORAllocatesLittle: the decoder does not trust a declared length.
func TestHostileCBORAllocatesLittle(t *testing.T) {
	for _, length := range [][]byte{{0x9a, 0x00, 0x01, 0xff, 0xff}, {0xba, 0x00, 0x01, 0xff, 0xff}, {0x7a, 0x7f, 0xff, 0xff, 0xff}, {0x9b, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff}} {
		data := withPayload(append([]byte{0xa1, 0x61, 'x'}, length...))
		const runs = 100
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			if _, err := envelope.ParseCBOR(data); err == nil {
				t.Fatal("accepted")
			}
		}
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) / runs; n > 16<<10 {
			t.Errorf("%x: %d bytes allocated", length, n)
		}
	}
}

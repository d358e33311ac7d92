package envelope_test

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/fxamacker/cbor/v2"
)

// referenceCBOR decodes an envelope with a common CBOR library, through a tree of values:
// an independent way to the same JSON, a hundred times as slow.
func referenceCBOR(data []byte) (*envelope.Envelope, error) {
	values, err := cbor.NewSimpleValueRegistryFromDefaults(cbor.WithRejectedSimpleValue(23)) // undefined
	if err != nil {
		return nil, err
	}
	mode, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, DefaultMapType: reflect.TypeFor[map[string]any](), IndefLength: cbor.IndefLengthForbidden,
		TagsMd: cbor.TagsForbidden, UTF8: cbor.UTF8RejectInvalid, NaN: cbor.NaNDecodeForbidden, Inf: cbor.InfDecodeForbidden, SimpleValues: values,
		MaxNestedLevels: 64, MaxArrayElements: math.MaxInt32, MaxMapPairs: math.MaxInt32,
	}.DecMode()
	if err != nil {
		return nil, err
	}
	var tree any
	if err := mode.Unmarshal(data, &tree); err != nil {
		return nil, err
	}
	text, err := appendTree(nil, tree)
	if err != nil {
		return nil, err
	}
	return envelope.ParseLimits(text, envelope.Limits{MaxBytes: max(1<<20, len(text))})
}

// appendTree appends a decoded CBOR value as JSON, with sorted names.
func appendTree(dst []byte, v any) (_ []byte, err error) {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case string:
		return envelope.AppendString(dst, v), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case uint64:
		return strconv.AppendUint(dst, v, 10), nil
	case big.Int:
		return v.Append(dst, 10), nil
	case float64:
		if v == 0 && math.Signbit(v) {
			return append(dst, "-0.0"...), nil
		}
		text, err := envelope.Canonical(strconv.AppendFloat(nil, v, 'e', -1, 64))
		if err == nil && !bytes.ContainsAny(text, ".e") {
			text = append(text, ".0"...)
		}
		return append(dst, text...), err
	case []any:
		dst = append(dst, '[')
		for i, item := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendTree(dst, item); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		dst = append(dst, '{')
		for i, name := range names {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(envelope.AppendString(dst, name), ':')
			if dst, err = appendTree(dst, v[name]); err != nil {
				return dst, err
			}
		}
		return append(dst, '}'), nil
	}
	return dst, fmt.Errorf("no JSON for a %T", v)
}

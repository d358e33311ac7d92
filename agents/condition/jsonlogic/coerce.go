package jsonlogic

import (
	"math"
	"strconv"
	"strings"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// truthy implements JsonLogic's truth values: an empty array is false, unlike
// in JavaScript; an object is true.
func truthy(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case float64:
		return v != 0 && !math.IsNaN(v)
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case nil, undefined:
		return false
	}
	return true
}

// strictlyEqual implements ===. Two arrays or two objects are never equal,
// because they are not identical.
func strictlyEqual(x, y any) bool {
	switch x.(type) {
	case string, float64, bool, nil, undefined:
		return x == y
	}
	return false
}

// looselyEqual implements == (ECMA-262, IsLooselyEqual).
func looselyEqual(b *limit.Budget, x, y any) bool {
	if absent(x) || absent(y) {
		return absent(x) && absent(y)
	}
	xo, yo := isObject(x), isObject(y)
	switch {
	case xo && yo:
		return false
	case xo:
		return looselyEqual(b, toText(b, x), y)
	case yo:
		return looselyEqual(b, x, toText(b, y))
	}
	xs, xok := x.(string)
	ys, yok := y.(string)
	if xok && yok {
		b.Bytes(len(xs))
		return xs == ys
	}
	return toNumber(b, x) == toNumber(b, y)
}

// less implements < and <= (ECMA-262, IsLessThan): two texts are compared as
// texts, everything else as numbers.
func less(b *limit.Budget, x, y any, orEqual bool) bool {
	if isObject(x) {
		x = toText(b, x)
	}
	if isObject(y) {
		y = toText(b, y)
	}
	xs, xok := x.(string)
	ys, yok := y.(string)
	if xok && yok {
		b.Bytes(len(xs))
		return xs < ys || orEqual && xs == ys
	}
	xn, yn := toNumber(b, x), toNumber(b, y)
	return xn < yn || orEqual && xn == yn
}

func absent(v any) bool { return v == nil || v == undefined{} }

func isObject(v any) bool {
	switch v.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}

// toNumber implements ECMA-262's ToNumber.
func toNumber(b *limit.Budget, v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case bool:
		if v {
			return 1
		}
		return 0
	case nil:
		return 0
	case undefined:
		return math.NaN()
	case string:
		b.Bytes(len(v))
		return textNumber(v)
	}
	return textNumber(toText(b, v))
}

var (
	decimal = pattern.Of(`^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?`)
	whole   = pattern.Of(`^0(?:[xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)$`)
)

func textNumber(s string) float64 {
	s = strings.TrimSpace(s)
	switch {
	case s == "":
		return 0
	case strings.TrimLeft(s, "+-") == "Infinity" && len(s) <= len("+Infinity"):
		return signed(s)
	case whole.RE().MatchString(s):
		n, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			return math.Inf(1)
		}
		return float64(n)
	}
	if m := decimal.RE().FindString(s); len(m) == len(s) {
		return float(m)
	}
	return math.NaN()
}

// parseFloat implements JavaScript's parseFloat: the number at the beginning of
// a text.
func parseFloat(b *limit.Budget, v any) float64 {
	if n, ok := v.(float64); ok {
		return n
	}
	s := strings.TrimSpace(toText(b, v))
	b.Bytes(len(s))
	if t := strings.TrimLeft(s, "+-"); strings.HasPrefix(t, "Infinity") && len(s)-len(t) <= 1 {
		return signed(s)
	}
	if m := decimal.RE().FindString(s); m != "" {
		return float(m)
	}
	return math.NaN()
}

func signed(s string) float64 {
	if s[0] == '-' {
		return math.Inf(-1)
	}
	return math.Inf(1)
}

// float parses a text that decimal has matched. A number out of range is an
// infinity.
func float(s string) float64 {
	n, _ := strconv.ParseFloat(s, 64)
	return n
}

// toText implements ECMA-262's ToString. The text of an array is its elements,
// joined by commas.
func toText(b *limit.Budget, v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b.Walk(v)
	var out strings.Builder
	writeText(&out, v)
	return out.String()
}

func writeText(out *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		out.WriteString(v)
	case bool:
		out.WriteString(strconv.FormatBool(v))
	case float64:
		out.WriteString(numberText(v))
	case nil:
		out.WriteString("null")
	case undefined:
		out.WriteString("undefined")
	case []any:
		for i, e := range v {
			if i > 0 {
				out.WriteByte(',')
			}
			if !absent(e) {
				writeText(out, e)
			}
		}
	default:
		out.WriteString("[object Object]")
	}
}

// numberText implements ECMA-262's Number::toString.
func numberText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0:
		return "0"
	case math.Abs(f) >= 1e21 || math.Abs(f) < 1e-6:
		s := strconv.FormatFloat(f, 'e', -1, 64)
		mantissa, exp, _ := strings.Cut(s, "e")
		return mantissa + "e" + exp[:1] + strings.TrimLeft(exp[1:], "0")
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

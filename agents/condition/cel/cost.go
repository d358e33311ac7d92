package cel

import (
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// sizes computes the cost of calls whose operands have type dyn, as all of ours
// do. CEL itself counts one unit for such a call, although s + s may make a
// megabyte.
type sizes struct{}

// CallCost implements CEL's cost.ActualCostEstimator. It is called after each
// call, so the largest amount by which a call can exceed the budget is the size
// of the whole value.
func (sizes) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	var n int
	switch function {
	case operators.Add:
		n = made(result)
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		if len(args) == 2 {
			n = size(args[1], size(args[0], maxSize))
		}
	case operators.In, operators.OldIn:
		if len(args) == 2 {
			n = size(args[1], maxSize)
		}
	case "size", "string", "bytes":
		if len(args) > 0 {
			n = size(args[0], maxSize)
		}
	case overloads.Matches:
		if len(args) == 2 {
			n = matchCost(args[0], args[1])
		}
	default:
		return nil // CEL's own cost applies
	}
	cost := uint64(1 + n)
	return &cost
}

// made returns the size of a sum. The sum of lists is a view of its parts,
// which Value would copy.
func made(v ref.Val) int {
	if list, ok := v.(traits.Lister); ok {
		n, _ := list.Size().(types.Int)
		return int(n)
	}
	return size(v, maxSize)
}

// maxSize is larger than any budget.
const maxSize = 1 << 30

// size estimates the cost of reading a value: one unit for each element or
// eight bytes. It stops counting at most.
func size(v any, most int) int {
	if most <= 0 {
		return 0
	}
	n := 1
	switch v := v.(type) {
	case string:
		n += len(v) / 8
	case []byte:
		n += len(v) / 8
	case []any:
		for _, e := range v {
			if n >= most {
				break
			}
			n += size(e, most-n)
		}
	case []ref.Val:
		for _, e := range v {
			if n >= most {
				break
			}
			n += size(e, most-n)
		}
	case map[string]any:
		for k, e := range v {
			if n >= most {
				break
			}
			n += len(k)/8 + size(e, most-n)
		}
	case map[ref.Val]ref.Val:
		for k, e := range v {
			if n >= most {
				break
			}
			n += size(k, most-n) + size(e, most-n)
		}
	case ref.Val:
		return size(v.Value(), most)
	}
	return n
}

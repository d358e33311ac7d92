package cel

import (
	"math"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"github.com/aeemesh/aeemesh/agents/condition/limit"
)

// sizes computes the cost of calls whose operands have type dyn, as all of ours do. CEL itself
// counts one unit for such a call, although s + s may make a megabyte. Its value is the budget: a
// size beyond it is not counted further.
type sizes limit.Cost

// CallCost implements CEL's cost.ActualCostEstimator. It is called after each
// call, so the largest amount by which a call can exceed the budget is the size
// of the whole value.
func (most sizes) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	var n int
	maxSize := int(min(limit.Cost(most), math.MaxInt32-1)) + 1
	switch function {
	case construct:
		n = size(result, maxSize)
	case operators.Add:
		n = made(result, maxSize)
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
func made(v ref.Val, most int) int {
	if list, ok := v.(traits.Lister); ok {
		n, _ := list.Size().(types.Int)
		return int(n)
	}
	return size(v, most)
}

// construct is the function by which [sizes] knows that a list or a map was
// made. No expression can call it.
const construct = "@construct"

// constructed is a list or a map in an expression. It costs as much as everything in it. A part
// that occurs in it several times is one value in memory, but a comparison or an output of the
// whole visits it each time, and cannot be interrupted: [1].map(x, [x, x]).map(x, [x, x])… doubles
// with each step.
type constructed struct {
	interpreter.InterpretableConstructor
}

// paid adds the cost of their contents to the lists and maps of an expression.
func paid(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if c, ok := i.(interpreter.InterpretableConstructor); ok && len(c.InitVals()) > 0 {
		return constructed{c}, nil
	}
	return i, nil
}

// Exec makes the value and spends its cost.
func (c constructed) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := c.InterpretableConstructor.Exec(frame)
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalZeroArity(frame, c.ID(), c, v)
	}
	return v
}

// Eval implements [interpreter.Interpretable].
func (c constructed) Eval(a interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(a, c.Exec)
}

// Function implements CEL's cost.Call.
func (constructed) Function() string { return construct }

// OverloadID implements CEL's cost.Call.
func (constructed) OverloadID() string { return construct }

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

// Package limit bounds the cost of evaluating one expression. All condition
// languages use it, for all expressions and values.
//
//	ok, err := limit.Run(ctx, limit.Cost(1e6), func(b *limit.Budget) (bool, error) {
//		for range list {
//			b.Spend(1) // ends the evaluation when nothing is left
//		}
//		return true, nil
//	})
//
// A unit of cost is about one step of an interpreter, or one element or eight
// bytes of output. The cost is the same on every machine. The time is not, so
// the context's deadline is only a second limit, checked every few hundred
// units.
//
// A Budget belongs to one evaluation and one goroutine.
package limit

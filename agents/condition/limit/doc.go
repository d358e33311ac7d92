// Package limit bounds what the evaluation of one expression may cost. The
// condition languages evaluate under it, whoever wrote the expression and
// whatever it is held against.
//
//	ok, err := limit.Run(ctx, limit.Cost(1e6), func(b *limit.Budget) (bool, error) {
//		for range list {
//			b.Spend(1) // ends the evaluation when nothing is left
//		}
//		return true, nil
//	})
//
// A unit of cost is about one step of an interpreter, or one element or eight
// bytes that it makes. The count is the same on every machine; how long it takes
// is not, so that a deadline is only a second fence, looked at every few hundred
// units.
//
// A Budget belongs to one evaluation and one goroutine.
package limit

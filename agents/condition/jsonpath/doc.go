// Package jsonpath asks whether an RFC 9535 JSONPath query selects anything.
//
//	q, err := jsonpath.Compile(`$.items[?@.price > 10 && match(@.sku, "A-.*")]`)
//	found, err := q.Exists(budget, value)
//
// All of RFC 9535 is there: its grammar, its five functions with their types,
// comparison, and I-Regexp (RFC 9485) for match and search, where a pattern that
// is not one matches nothing. Queries that are not well-formed or not well-typed
// are errors of Compile.
//
// # Why not a library
//
// A query is a stranger's. Selectors may repeat, as in $[0,0][0,0][0,0], and
// descendant segments and filters nest, so that a short query selects more nodes
// than any memory holds; evaluators that build node lists cannot be stopped. This
// one visits nodes one at a time, keeps none, ends at the first that answers the
// question, and spends a [limit.Budget] for every visit. The members of objects
// are visited in the order of their names, so that equal values cost alike.
//
// A Query may be used by any number of goroutines.
package jsonpath

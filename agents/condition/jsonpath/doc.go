// Package jsonpath evaluates RFC 9535 JSONPath queries; it tells whether a
// query selects any node.
//
//	q, err := jsonpath.Compile(`$.items[?@.price > 10 && match(@.sku, "A-.*")]`)
//	found, err := q.Exists(budget, value)
//
// It implements all of RFC 9535: the grammar, the five functions with their
// types, comparison, and I-Regexp (RFC 9485) for match and search; an invalid
// pattern matches nothing. Queries that are not well-formed or not well-typed
// are errors of Compile.
//
// # Why not a library
//
// A query may come from a stranger. Selectors may repeat, as in
// $[0,0][0,0][0,0], and descendant segments and filters nest, so that a short
// query can select more nodes than fit into memory; evaluators that build node
// lists cannot be stopped. This one visits one node at a time, stores none,
// stops at the first match, and spends a [limit.Budget] for every visit.
// Members of objects are visited in the order of their names, so that equal
// values cost the same.
//
// A Query is safe for concurrent use.
package jsonpath

// Package counter counts for a whole mesh: rates of calls, costs of trees. A counter is a subject of
// the stream [Stream], and the server adds.
package counter

// Package pattern has regular expressions that are compiled when they are first used.
// The program has a hundred of them, and most commands use none: compiled at the start,
// they were a twelfth of its processor time.
package pattern

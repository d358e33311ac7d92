// Package recent remembers the last ids of many.
package recent

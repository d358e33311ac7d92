// Package waited derives from a consumer's counters how long messages have been waiting.
package waited

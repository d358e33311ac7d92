// Package metrictest reads, in tests, what the instruments of OpenTelemetry have recorded. A
// package that uses the SDK's provider compiles the SDK's generic types again, 300 kB of code; so
// only this package uses it.
package metrictest

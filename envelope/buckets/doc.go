// Package buckets has the bounds of histograms, for all packages that report metrics:
//
//	m.Float64Histogram("aee.task.duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets.Durations()...))
//
// A histogram without explicit bounds has OpenTelemetry's, which suit milliseconds: in a histogram
// in seconds, all values below 5 s would be in one bucket.
//
// Each call returns a new list, in ascending order.
package buckets

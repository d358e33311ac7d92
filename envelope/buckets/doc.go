// Package buckets has the bounds of the histograms of metrics, which the packages that
// report share:
//
//	m.Float64Histogram("aee.task.duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets.Durations()...))
//
// Without bounds of its own a histogram has OpenTelemetry's, which suit milliseconds:
// of a histogram in seconds all below 5 s is in one bucket.
//
// Each function returns a list of its own, in rising order.
package buckets

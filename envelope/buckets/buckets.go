package buckets

// Durations returns bounds in seconds for tasks, their time in queues, and calls of
// tools: 1 ms to 10 minutes.
func Durations() []float64 {
	return []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600}
}

// Writes returns bounds in seconds for writes to a store: 0.5 ms to 10 s.
func Writes() []float64 {
	return []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10}
}

// Sizes returns bounds in bytes: the powers of 4 from 1 KiB to 64 MiB.
func Sizes() []float64 { return powers(1<<10, 4, 9) }

// ModelCalls returns the bounds in seconds of the GenAI conventions of OpenTelemetry for the
// duration of model calls: 10 ms, doubled, to 81.92 s.
func ModelCalls() []float64 {
	return []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
}

// Tokens returns the bounds of the same conventions for tokens: the powers of 4 from 1 to 4^13.
func Tokens() []float64 { return powers(1, 4, 14) }

// powers returns n numbers: the first one, and each next one multiplied by a factor.
func powers(first, factor float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i], first = first, first*factor
	}
	return out
}

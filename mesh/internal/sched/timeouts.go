package sched

import "time"

// Time limits of requests to the mesh's stores.
const (
	// StoreTimeout bounds a request that has no other limit.
	StoreTimeout = 10 * time.Second
	// LookTimeout bounds a request that a sender waits for.
	LookTimeout = 5 * time.Second
)

package sched

import "time"

// Time limits of requests to the mesh's stores.
const (
	// StoreTimeout bounds a request that has no other limit.
	StoreTimeout = 10 * time.Second
	// LookTimeout bounds what a waiting sender has to wait for.
	LookTimeout = 5 * time.Second
)

// Package holders watches the workers that have the live tasks for which a node waits, and
// ends the wait when one of them is dead.
//
// It pings the own subject of each worker, as a guardian does. One probe serves all tasks of
// a worker. No goroutine runs while the node waits for no task whose worker named itself.
package holders

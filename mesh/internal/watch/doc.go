// Package watch finds out soon that a worker has died.
//
// A NATS server answers a request to a subject without subscribers at once, with "no
// responders". So a request to a subject that one worker alone listens to tells whether
// that worker is connected: its subscriptions end with its process, or its pod. A worker
// that merely lost its connection connects again at once; one that is slow, or paused by
// a debugger, still has its subscription. So a worker is dead only if it has no
// responder twice, with a pause in between; all others keep the lease that they have.
//
// A living worker does not answer a probe: silence already says that it is connected, and an
// answer would cost as much as the probe.
package watch

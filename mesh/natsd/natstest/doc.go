// Package natstest starts real NATS servers for tests, one a test, in about
// two milliseconds:
//
//	srv := natstest.Run(t, natsd.Config{JetStream: true}) // random port, own store
//	nc := natstest.Conn(t, srv)
//	srv = natstest.Restart(t, srv) // same port, same store; nc reconnects
//
// [Cluster] starts several that are one cluster, for streams with replicas;
// electing a leader takes them some three seconds.
//
// With AEEMESH_TEST_JITTER=20ms in the environment, connections hear what the
// server says up to so much later, each on its own: a test that
// assumes an order between two of them fails soon.
//
// Stores are in memory, where the machine has a file system there; with
// AEEMESH_TEST_DISK=1 they are on the disk. [AtOnce] runs more tests at once than there
// are cores.
//
// The port of a server is kept for its test, also while the server is down: the system
// gives it to no other process (on Linux).
//
// Everything is closed when the test ends. All functions call t.Fatal on
// failure, so they belong in the test's own goroutine.
package natstest

// Package doctor is "aeemesh doctor": it connects as a worker, a sender or an
// operator would, and checks the connection, the server, JetStream, permissions,
// clocks, agents and queues.
//
// Each check prints one line: ok, warn or fail, what was found, and a hint. A check for which the
// user lacks permission warns; it does not fail. The messages that test whether JetStream stores
// expire within seconds.
package doctor

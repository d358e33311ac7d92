// Package doctor is "aeemesh doctor": it connects as a worker, a sender or an
// operator would, and checks the connection, the server, JetStream, permissions,
// clocks, agents and queues.
//
// Each check prints one line: ok, warn or fail, what was found, and a hint. A
// check that the user may not make says so and warns; it does not fail. What is
// stored to see that JetStream stores expires within seconds.
package doctor

// Package share tracks how much of the stores of runs one agent's runs use.
//
// While a store is crowded and the agent uses more than its share, the agent's new tasks wait in
// the queue, so that other agents have space. The share is smaller in a store that is nearly full
// ([jetstream.Share.Fair]). Runs that have begun go on.
//
// A [Share] reads the figures of the stores periodically. In between it adds up the bytes that
// this worker writes and the runs that it begins. It knows a run by its [Reservation].
package share

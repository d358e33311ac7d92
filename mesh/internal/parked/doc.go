// Package parked watches parked runs that wait for answers or for a time, and calls back when one
// may go on.
//
// It subscribes to the subjects of the answers and sets timers. The caller decides in
// [Config].Check whether the run goes on: every worker of an entity may watch a run. The caller
// also checks all runs periodically, and so finds an answer that was missed.
//
// It stands on the NATS client and package sched. It knows a run by its id and
// the revision of its record.
package parked

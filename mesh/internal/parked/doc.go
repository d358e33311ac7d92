// Package parked watches parked runs that wait for answers or for a time, and has each
// checked when it may go on.
//
// It subscribes to the subjects of the answers and sets timers. Whether a run really goes on
// is for its caller to find out, in [Config].Check: every worker of an entity may watch a run.
// A missed answer is found by the next check of all runs, which is the caller's too.
//
// It stands on the NATS client and package sched. It knows a run by its id and
// the revision of its record.
package parked

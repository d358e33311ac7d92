// Package guardian lets the workers of one agent watch one another, so that the runs of a
// worker that dies go on at once.
//
// A worker that has runs lets two other workers of its agent, its guardians, watch it. When the
// server says twice that the worker's own ping subject has no subscriber, its guardians report it
// dead, by [Config].Dead. The caller then takes over its runs. A worker without runs has no
// guardian and costs nothing.
//
// There are two guardians because one may die with the worker, or may itself have
// reconnected just now. The second watches less closely: it matters only if the first one
// dies too. A worker also watches its guardians, and finds another one when one dies. A
// worker that starts checks the owners of all runs once ([Guardian.LookAfter]): the owner
// may have been the agent's only worker, or its guardians may have died at the same time.
//
// The package decides which worker watches which. It stands mainly on packages watch, which
// decides when a worker is dead, and probe, which asks whether it is connected. It uses no
// envelopes, stores or runs.
package guardian

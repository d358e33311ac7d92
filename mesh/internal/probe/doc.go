// Package probe asks the NATS server whether a worker is connected.
//
// Each worker subscribes to a ping subject of its own. The server answers a request to a subject
// without subscribers with "no responders". So this answer means that the worker's process is not
// connected. Silence, or any other answer, means that it is.
//
// A [Prober] does this for one connection. Packages guardian and holders watch workers with
// it. It stands on the NATS client, the naming of NATS services and package listen alone.
package probe

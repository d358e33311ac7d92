// Package inspect examines the JetStream of one mesh for a report, and changes nothing: what
// the account uses, which streams answer the requests of others, and how durable an
// acknowledged message is.
package inspect

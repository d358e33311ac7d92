// Package copies counts the streams that store what is published on a subject. There is more
// than one where JetStream domains share the subjects of an account.
package copies

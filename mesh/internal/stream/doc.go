// Package stream sends the stream envelopes of a durable task and records what was sent. The
// envelopes go to the task's reply subject. The numbers continue from the checkpoint, so that a
// reader that begins later gets each envelope once.
//
// After a crash, text of an unfinished turn may have been sent that is in no checkpoint:
// it is read from the reply subject ([Stream.Read]). A handler that calls [Stream.SentText]
// continues after that text. For other handlers the stream compares: replayed text is not
// sent again, and if the new text differs, an envelope with "restart": true says that the
// text of the turn begins anew.
//
// Followers drop an envelope with a lower number than one before it. So while an envelope may be
// lost, for example after a lost connection, all later ones are held back until it is stored. If a
// later one was stored first all the same, the earlier one is replaced: text begins anew, and any
// other payload is sent again under the next number.
//
// It stands mainly on the replies in JetStream and on the stream's fields of a checkpoint. The
// caller makes and signs the envelopes ([Task]).
package stream

// Package stream sends the stream envelopes of a durable task and records what was
// sent. The envelopes go to the task's reply subject. Their numbers continue those of the
// checkpoint, so that a reader that begins later gets each envelope once.
//
// After a crash, text of an unfinished turn may have been sent that is in no checkpoint:
// it is read from the reply subject ([Stream.Read]). A handler that calls [Stream.SentText]
// continues after that text. For other handlers the stream compares: replayed text is not
// sent again, and if the new text differs, an envelope with "restart": true says that the
// text of the turn begins anew.
//
// Followers drop an envelope with a lower number than one before it. So no envelope is published while
// an earlier one may be lost, after a lost connection for instance: it is held back until that one
// is stored. One that a later one has overtaken all the same is replaced: text begins anew, and
// other payloads are sent again under the next number.
//
// It stands mainly on the replies in JetStream and on the stream's fields of a checkpoint. How an
// envelope is made and signed is for its caller ([Task]).
package stream

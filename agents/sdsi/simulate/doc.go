// Package simulate simulates how a schema template grows over months (SDSI 6.2), in seconds and
// without a mesh. The pool, the making of keys and the judging of values are those of package
// learn; the clock and the clients are simulated.
//
// A simulated client has wishes. It knows the template, and the keys that it received with its
// latest result or its latest request for the template. A wish that one of these keys covers
// becomes the key's value; the other wishes go into "other". The embedder decides by the key's
// description whether a key covers a wish, because a client knows nothing else of the key.
//
// [Generator] generates requests, and [Requests] reads them from a file. An [Attack] adds requests
// of attackers to those of a generator.
package simulate

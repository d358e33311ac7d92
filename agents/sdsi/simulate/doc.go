// Package simulate plays how a schema template grows (SDSI 6.2) over months, in seconds and
// without a mesh. The pool, the making of keys and the judging are those of package learn;
// the clock and the clients are simulated.
//
// A simulated client has wishes. It knows the template and the keys that it was told of with
// its latest result, or when it last asked. A wish that one of those keys covers becomes the
// key's value, the others go into "other". Whether a key covers a wish is decided by the
// embedder from the key's description, as a client has nothing else.
//
// [Generator] makes up requests, and [Requests] reads them from a file. An [Attack] adds
// requests of attackers to those of a generator.
package simulate

// Package embeddingtest has the conformance suite of the port agents/embedding, and the vectors of models
// that tests pretend to ask.
package embeddingtest

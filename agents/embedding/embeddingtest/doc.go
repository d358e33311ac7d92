// Package embeddingtest has the conformance suite of the port agents/embedding.
package embeddingtest

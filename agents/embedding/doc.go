// Package embedding is the port to what turns texts into vectors, so that their meanings can
// be compared. Package ngrams needs no model; those of vendors are in packages of their own.
// Package embeddingtest has the suite that all of them pass.
//
// The vectors of two embedders, or of two versions of one, have nothing to do with each
// other: who stores vectors stores [Embedder].Name beside them.
package embedding

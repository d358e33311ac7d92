// Package conditions has the commands of "aeemesh condition": they evaluate
// conditions of documents, one or a batch, without a mesh.
package conditions

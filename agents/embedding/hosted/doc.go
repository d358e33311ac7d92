// Package hosted is the embedder for models of Bedrock and Vertex AI. These services have
// one call for all kinds of models, and each kind has a format of its own. The adapters of
// package model make the calls, with their credentials and errors.
package hosted

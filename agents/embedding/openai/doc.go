// Package openai is the embedder for endpoints that speak OpenAI's embeddings protocol.
// Errors are those of package model. The key is read at each call and sent to the origin
// of BaseURL alone.
package openai

// Package models has the commands of "aeemesh models": what is known of models, and
// which of them a document would use here. They connect to nothing.
package models

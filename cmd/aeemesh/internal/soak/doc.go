// Package soak is "aeemesh soak": it runs the crash harness of jetstream/soak
// with processes of this program, which it kills and starts again.
package soak

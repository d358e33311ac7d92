// Package schemas has the commands of "aeemesh schema": what agents want to know in which
// scenario (Structured Data Schema Interaction), and what they have learned.
package schemas

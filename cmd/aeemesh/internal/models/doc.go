// Package models has the commands of "aeemesh models": they list the known facts about models, and
// the models that a document would use here. They connect to nothing.
package models

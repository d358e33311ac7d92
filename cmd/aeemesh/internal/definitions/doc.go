// Package definitions has the commands about documents: `aeemesh validate` checks them, and
// `aeemesh agents import`, `definitions`, `export`, `history` and `remove` keep them in the
// registry of a mesh.
package definitions

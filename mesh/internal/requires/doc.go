// Package requires reads and checks the members of field requires that the mesh adds to
// those of AEE: for which mesh and lane a task is, when it begins, and what a person's
// answer must be.
package requires

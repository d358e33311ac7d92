// Package keys has the commands of "aeemesh keys": they make, list, trust and
// revoke the keys that sign envelopes, in the directory of keys and in the bucket
// of the mesh.
package keys

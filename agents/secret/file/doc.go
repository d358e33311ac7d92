// Package file is a vault of files: secrets that a cluster mounts, or that a
// developer stores beside the worker.
//
//	v, err := file.New(file.Config{Dir: "/run/secrets/agents"})
//	v, err := file.New(file.Config{File: "/etc/aeemesh/secrets.yaml"})
//
// In a folder, a path is a file below it; neither dots nor symbolic links lead
// out of it. A key is a member of the JSON object in the file, or, where the
// path is a folder, a file in it, as a cluster mounts a secret with several
// keys. One newline at the end of a file is removed.
//
// In one file, of JSON or YAML, a path is the name of a member, or of nested
// members, joined by slashes; a key is the name of one more.
//
// Files are read at each call. Only their owner may be able to read them, mode
// 0600 or less, unless the operator permits any mode. There are no versions.
package file

// Package file is a vault of files, for those who have no other: secrets that a
// cluster mounts, or that a developer keeps beside the worker.
//
//	v, err := file.New(file.Config{Dir: "/run/secrets/agents"})
//	v, err := file.New(file.Config{File: "/etc/aeemesh/secrets.yaml"})
//
// In a folder, a path is a file below it; nothing leads out of it, neither dots nor
// symbolic links. A key is a member of the JSON object in the file, or, where the
// path is a folder, a file in it, as a cluster mounts a secret with several keys.
// One line end at the end of a file is no part of the secret.
//
// In one file, of JSON or YAML, a path is a member, or the names of members within
// each other with slashes between them; a key is one more.
//
// Files are read at each call. They may be readable by nobody but their owner,
// mode 0600 or less, unless the operator takes any mode. There are no versions.
package file

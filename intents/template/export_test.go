package template

import "io/fs"

// LoadFS loads the templates in the top folder of a file system.
func LoadFS(fsys fs.FS) ([]*Template, error) { return loadFolder(fsys, "") }

package scratch

import "os"

// Dir makes a directory in another one, whose name begins with prefix. It removes those with the
// same prefix whose process has ended. remove removes the new one.
func Dir(in, prefix string) (dir string, remove func() error, err error) {
	removeAbandoned(in, prefix)
	if dir, err = os.MkdirTemp(in, prefix); err != nil {
		return "", nil, err
	}
	release, err := own(dir)
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, func() error {
		err := os.RemoveAll(dir)
		release()
		return err
	}, nil
}

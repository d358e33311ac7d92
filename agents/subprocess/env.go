package subprocess

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// BaseEnv returns the variables that every program gets if the worker has them:
// those without which programs do not start. Do not add secrets.
func BaseEnv() []string {
	return []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "USERPROFILE"}
}

// Env returns a program's environment: the variables of [BaseEnv] and those
// that are listed, NAME for the worker's own and NAME=value for another one. It
// is never nil, because os/exec would let the program inherit everything.
func Env(listed []string, lookup func(name string) (string, bool)) []string {
	out := []string{}
	for _, e := range slices.Concat(BaseEnv(), listed) {
		if strings.Contains(e, "=") {
			out = append(out, e)
		} else if value, ok := lookup(e); ok {
			out = append(out, e+"="+value)
		}
	}
	return out
}

// MeshOwn reports whether a variable may hold this process's own keys to the
// mesh, which no document may read and no program gets a copy of.
func MeshOwn(name string) bool {
	upper := strings.ToUpper(name) // on some systems case does not matter
	return strings.HasPrefix(upper, "NATS_") || strings.HasPrefix(upper, "AEEMESH_")
}

// CheckEnv reports the first entry of an operator's list that [CheckEntry]
// refuses.
func CheckEnv(listed []string) error {
	for i, e := range listed {
		if err := CheckEntry(e); err != nil {
			return fmt.Errorf("env/%d: %w", i, err)
		}
	}
	return nil
}

// CheckEntry reports an entry that is neither NAME nor NAME=value, or that
// copies a variable of [MeshOwn]. It does not quote values, which may be
// secrets.
func CheckEntry(e string) error {
	name, _, set := strings.Cut(e, "=")
	switch {
	case name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) || strings.ContainsRune(e, 0):
		return errors.New("it is NAME or NAME=value")
	case !set && MeshOwn(name):
		return fmt.Errorf("%s may let a process into the mesh, and is not copied; give a program a key of its own as NAME=value", name)
	}
	return nil
}

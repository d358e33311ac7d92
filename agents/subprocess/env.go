package subprocess

import (
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

// CheckEnv reports entries of an operator's list that are neither NAME nor
// NAME=value. It does not quote values, which may be secrets.
func CheckEnv(listed []string) error {
	for i, e := range listed {
		name, _, _ := strings.Cut(e, "=")
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) || strings.ContainsRune(e, 0) {
			return fmt.Errorf("env/%d: it is NAME or NAME=value", i)
		}
	}
	return nil
}

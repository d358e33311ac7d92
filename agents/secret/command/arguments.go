package command

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// placeholder matches the parts of an argument that are replaced by a
// document's text.
var placeholder = regexp.MustCompile(`\{(path|key|version)\}`)

// plainArgument matches arguments whose placeholders are always data: a script,
// a filter or a query contains other characters.
var plainArgument = regexp.MustCompile(`^[\w{}./:=@%+,-]*$`)

// code matches the options of shells and interpreters whose argument is a
// program.
var code = regexp.MustCompile(`^(-[A-Za-z]*[ceEr]|--command|--eval|--execute|/[ckCK]|-[Cc]ommand)$`)

// interpreters are programs that execute the argument of such an option.
var interpreters = regexp.MustCompile(`^(sh|bash|dash|ash|zsh|ksh|mksh|fish|csh|tcsh|busybox|cmd|powershell|pwsh|python[\d.]*|perl|ruby|node|php|lua|awk|eval|su|script)(\.exe)?$`)

// elsewhere are programs that pass all their arguments to a shell.
var elsewhere = regexp.MustCompile(`^(ssh|rsh|eval)(\.exe)?$`)

// checkArguments refuses a command in which a placeholder would be read as
// code: the document's author, possibly a stranger, could write $(…) into a
// path.
func checkArguments(command []string) error {
	interpreted, remote := false, false
	for i, arg := range command {
		name := path.Base(strings.ReplaceAll(arg, `\`, "/"))
		switch at := fmt.Sprintf("command/%d", i); {
		case !placeholder.MatchString(arg):
		case remote:
			return fmt.Errorf("%s: a shell reads what it is given here, and a document's words may be code to it: use SECRET_PATH, SECRET_KEY and SECRET_VERSION of the environment", at)
		case !plainArgument.MatchString(arg), interpreted && code.MatchString(command[i-1]):
			return fmt.Errorf(`%s: a placeholder stands in a script, where a document's words may be code: pass it as an argument of its own (sh -c 'pass show "$1"' sh {path}), or use SECRET_PATH, SECRET_KEY and SECRET_VERSION of the environment`, at)
		}
		interpreted = interpreted || interpreters.MatchString(name)
		remote = remote || elsewhere.MatchString(name)
	}
	return nil
}

package command

import (
	"fmt"
	"path"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// placeholder matches the parts of an argument that are replaced by a
// document's text.
var placeholder = pattern.Of(`\{(path|key|version)\}`)

// plainArgument matches arguments whose placeholders are always data: a script,
// a filter or a query contains other characters.
var plainArgument = pattern.Of(`^[\w{}./:=@%+,-]*$`)

// code matches the options of shells and interpreters whose argument is a
// program.
var code = pattern.Of(`^(-[A-Za-z]*[ceEr]|--command|--eval|--execute|/[ckCK]|-[Cc]ommand)$`)

// interpreters are programs that execute the argument of such an option.
var interpreters = pattern.Of(`^(sh|bash|dash|ash|zsh|ksh|mksh|fish|csh|tcsh|busybox|cmd|powershell|pwsh|python[\d.]*|perl|ruby|node|php|lua|awk|eval|su|script)(\.exe)?$`)

// elsewhere are programs that pass all their arguments to a shell.
var elsewhere = pattern.Of(`^(ssh|rsh|eval)(\.exe)?$`)

// checkArguments refuses a command in which a placeholder would be read as
// code: the document's author, possibly a stranger, could write $(…) into a
// path.
func checkArguments(command []string) error {
	interpreted, remote := false, false
	for i, arg := range command {
		name := path.Base(strings.ReplaceAll(arg, `\`, "/"))
		switch at := fmt.Sprintf("command/%d", i); {
		case !placeholder.RE().MatchString(arg):
		case remote:
			return fmt.Errorf("%s: a shell reads what it is given here, and a document's words may be code to it: use SECRET_PATH, SECRET_KEY and SECRET_VERSION of the environment", at)
		case !plainArgument.RE().MatchString(arg), interpreted && code.RE().MatchString(command[i-1]):
			return fmt.Errorf(`%s: a placeholder stands in a script, where a document's words may be code: pass it as an argument of its own (sh -c 'pass show "$1"' sh {path}), or use SECRET_PATH, SECRET_KEY and SECRET_VERSION of the environment`, at)
		}
		interpreted = interpreted || interpreters.RE().MatchString(name)
		remote = remote || elsewhere.RE().MatchString(name)
	}
	return nil
}

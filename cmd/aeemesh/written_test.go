package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// patterns of commands in a file, by its extension: whole ones, and those that prose and
// hints mention with placeholders or without their arguments.
var whole, mentioned = map[string]*regexp.Regexp{
	".md":   regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```"),
	".go":   regexp.MustCompile(`(?m)^//\t(aeemesh .*)$`),
	".yaml": regexp.MustCompile(`(?m)^# *(aeemesh .*)$`),
	".py":   regexp.MustCompile(`(?m)^(?:# *|  )(aeemesh .*)$`),
	".mjs":  regexp.MustCompile(`(?m)^// *(aeemesh .*)$`),
}, map[string]*regexp.Regexp{
	".md": regexp.MustCompile("`(aeemesh [^`]+)`"),
	".go": regexp.MustCompile(`\\"(aeemesh [^"\\]+)\\"`),
}

// A command that the help, a hint, a page or a file of the examples shows has the name and
// the flags of a command of this program, and the arguments if it is shown whole. The
// commands are parsed, not run.
func TestWrittenCommandsAreUnderstood(t *testing.T) {
	t.Parallel()
	seen := 0
	root := newApp(nil, nil, nil, func(string) string { return "" }).root()
	check := func(where, text string, understood func(root *cobra.Command, args []string) error) {
		commands, err := shellCommands(text)
		if err != nil {
			t.Errorf("%s: %v", where, err)
		}
		for _, words := range commands {
			if words[0] != "aeemesh" {
				continue
			}
			seen++
			if err := understood(root, words[1:]); err != nil {
				t.Errorf("%s: %s: %v", where, strings.Join(words, " "), err)
			}
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		check(c.CommandPath()+" --help", c.Example, parses)
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(root)
	inHelp := seen
	top := filepath.Join("..", "..")
	err := filepath.WalkDir(top, func(name string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name != top && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || whole[filepath.Ext(name)] == nil || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		each := func(pattern *regexp.Regexp, understood func(*cobra.Command, []string) error) {
			if pattern == nil {
				return
			}
			for _, m := range pattern.FindAllSubmatchIndex(text, -1) {
				check(fmt.Sprintf("%s:%d", name, 1+bytes.Count(text[:m[2]], []byte("\n"))), string(text[m[2]:m[3]]), understood)
			}
		}
		each(whole[filepath.Ext(name)], parses)
		each(mentioned[filepath.Ext(name)], isNamed)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if inHelp < 200 || seen < 600 {
		t.Errorf("%d commands were found, %d of them in the help: the patterns are wrong", seen, inHelp)
	}
}

// The configurations and agent documents that the pages show are valid. A block of a part of
// a document is checked as such a part; blocks of smaller parts are not checked.
func TestWrittenDocumentsAreValid(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	fence := regexp.MustCompile("(?ms)^```yaml\n((?:#.*?\n)*([a-z_]+):.*?)^```")
	elsewhere := regexp.MustCompile("(?m)^.*(no such file or directory|section vaults has no .*)$") // what a block only names
	file := filepath.Join(t.TempDir(), "block.yaml")
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fence.FindAllSubmatchIndex(text, -1) {
			block, args := string(text[m[2]:m[3]]), []string{"validate", file}
			switch first := string(text[m[4]:m[5]]); first {
			case "sc_standard":
			case "model", "tools", "orchestration":
				block = "sc_standard: SC-006\nagent:\n  name: Shown\n  goal: Shown.\n  " + strings.ReplaceAll(block, "\n", "\n  ")
			case "when":
				continue
			default:
				args = []string{"config", "check", file}
			}
			checked++
			if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
				t.Fatal(err)
			}
			code, out, words := runForTest(args...)
			wrong := strings.TrimSpace(elsewhere.ReplaceAllString(words, ""))
			if code != exitOK && wrong != "" {
				t.Errorf("%s:%d: %s%s", page, 1+bytes.Count(text[:m[2]], []byte("\n")), out, wrong)
			}
		}
	}
	if checked < 15 {
		t.Errorf("%d blocks were checked: the pattern is wrong", checked)
	}
}

// isNamed looks for the command and the flags of a command line that may lack arguments.
func isNamed(root *cobra.Command, args []string) error {
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	c.InitDefaultHelpFlag()
	for _, arg := range rest {
		name, isFlag := strings.CutPrefix(arg, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && c.Flag(name) == nil {
			return fmt.Errorf("%q has no flag --%s", c.CommandPath(), name)
		}
	}
	if len(rest) > 0 && c.HasSubCommands() && regexp.MustCompile(`^[a-z]+$`).MatchString(rest[0]) {
		return fmt.Errorf("%q is no command of %q", rest[0], c.CommandPath())
	}
	return nil
}

// parses parses a command line as the program does before it runs a command.
func parses(root *cobra.Command, args []string) error {
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Changed = false }) // by an earlier command line
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	if left := c.Flags().Args(); c.HasSubCommands() && len(left) > 0 {
		return fmt.Errorf("%q is no command of %q", left[0], c.CommandPath())
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return err
	}
	return c.ValidateRequiredFlags()
}

// shellCommands returns the simple commands of a shell script, without redirections and
// variables that are set before a command. Commands within $(…) and <(…) are among them.
func shellCommands(text string) (commands [][]string, err error) {
	script, err := syntax.NewParser().Parse(strings.NewReader(text), "")
	if err != nil {
		return nil, err
	}
	words := &expand.Config{
		Env:       expand.FuncEnviron(func(name string) string { return "$" + name }),
		CmdSubst:  func(w io.Writer, _ *syntax.CmdSubst) error { _, err := io.WriteString(w, "OUTPUT"); return err },
		ProcSubst: func(*syntax.ProcSubst) (string, error) { return "OUTPUT", nil },
	}
	syntax.Walk(script, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 || err != nil {
			return err == nil
		}
		var command []string
		for _, arg := range call.Args {
			var word string
			word, err = expand.Literal(words, arg)
			command = append(command, word)
		}
		switch command[0] {
		case "exec":
			command = command[1:]
		case "ssh":
			command = command[min(2, len(command)):]
		}
		if len(command) > 0 {
			commands = append(commands, command)
		}
		return true
	})
	return commands, err
}

func TestShellCommands(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`aeemesh send agent.x '{"a": 1}' --stream   # words`: `[[aeemesh send agent.x {"a": 1} --stream]]`,
		"a=1 aeemesh up & sleep 2; echo x | aeemesh ask e -": `[[aeemesh up] [sleep 2] [echo x] [aeemesh ask e -]]`,
		`id=$(aeemesh send e "two words" -d)`:                `[[aeemesh send e two words -d]]`,
		`nats req e "$(aeemesh envelope new e x)" --raw`:     `[[nats req e OUTPUT --raw] [aeemesh envelope new e x]]`,
		"cat > f <<'END'\naeemesh nothing\nEND\naeemesh up":  `[[cat] [aeemesh up]]`,
		"aeemesh up \\\n  --port 1 > log 2>&1\njq . <<<x":    `[[aeemesh up --port 1] [jq .]]`,
		"if out=$(aeemesh plan); then\n! aeemesh up\nfi":     `[[aeemesh plan] [aeemesh up]]`,
		"ssh worker aeemesh keys trust -":                    `[[aeemesh keys trust -]]`,
	} {
		if got, err := shellCommands(text); fmt.Sprint(got) != want {
			t.Errorf("%s:\n got %s, %v\nwant %s", text, got, err, want)
		}
	}
}

package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var extras = flag.String("extras", "", "write the manual pages and the completions of a release into this folder")

// extrasDir is a folder for what a release holds beside the program.
func extrasDir(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if *extras != "" {
		dir = filepath.Join(*extras, name)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	dir := extrasDir(t, "completions")
	for shell, name := range map[string]string{"bash": "aeemesh.bash", "zsh": "_aeemesh", "fish": "aeemesh.fish", "powershell": "aeemesh.ps1"} {
		code, script, words := runForTest("completion", shell)
		if code != exitOK || words != "" || !strings.Contains(script, "__complete") {
			t.Errorf("completion %s: exit %d, stderr %q, %d bytes", shell, code, words, len(script))
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The manual pages are the help in another form. They are written by a test, so that
// the program does not carry their writer; and not by cobra/doc, which reads help as
// Markdown, where <words> in angle brackets vanish and columns run together.
func TestManPages(t *testing.T) {
	t.Parallel()
	a := newApp(nil, &bytes.Buffer{}, &bytes.Buffer{}, func(string) string { return "" })
	dir := extrasDir(t, "man")
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		page := a.manPage(c)
		for _, want := range []string{".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n", ".SH EXAMPLES\n", ".SH EVERYWHERE\n"} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: no %q", c.CommandPath(), want)
			}
		}
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" && f.Name != "help-all" && !strings.Contains(page, roff("--"+f.Name)) {
				t.Errorf("%s: nothing about --%s", c.CommandPath(), f.Name)
			}
		})
		if err := os.WriteFile(filepath.Join(dir, manName(c)+".1"), []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(a.root())
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// usageLine is a line of pflag's usages: the flag and its value, three spaces or more,
// and what it does.
var usageLine = regexp.MustCompile(`^ +(-.*?) {3,}(\S.*)\n$`)

// manPage is the manual page of a command.
func (a *app) manPage(c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"aeemesh %s\" \"User Commands\"\n", roff(strings.ToUpper(manName(c))), version())
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(c)), roff(c.Short))
	use := c.UseLine()
	if c.HasAvailableSubCommands() {
		use = c.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.SH DESCRIPTION\n", roff(use))
	about := c.Long
	if about == "" {
		about = c.Short + "."
	}
	if more := c.Annotations[annotMore]; more != "" {
		about += "\n\n" + strings.TrimSpace(more)
	}
	manText(&b, about)
	b.WriteString(".SH EXAMPLES\n")
	manText(&b, strings.Trim(c.Example, "\n"))

	// What is left of the help: commands and flags, in sections.
	const section = "\x00"
	var rest strings.Builder
	heading := func(s string) { rest.WriteString(section + s + "\n") }
	helpCommands(&rest, c, heading)
	helpFlags(&rest, c, heading)
	for line := range strings.Lines(rest.String()) {
		if title, ok := strings.CutPrefix(line, section); ok {
			fmt.Fprintf(&b, ".SH %s\n", roff(strings.ToUpper(strings.TrimRight(title, ":\n"))))
		} else if m := usageLine.FindStringSubmatch(line); m != nil {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(m[1]), roff(m[2]))
		} else if name, short, ok := strings.Cut(strings.TrimSpace(line), "  "); ok {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(name), roff(strings.TrimSpace(short)))
		} else {
			b.WriteString(roff(strings.TrimSpace(line)) + "\n")
		}
	}
	if c.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(manName(c.Parent())))
	}
	return b.String()
}

// manText writes paragraphs; lines that are indented stay as they are.
func manText(b *strings.Builder, text string) {
	verbatim := false
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		line = strings.TrimRight(line, "\n")
		if indented := strings.HasPrefix(line, "  ") || line == "" && verbatim; indented != verbatim {
			verbatim = indented
			b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[verbatim])
		}
		if line == "" && !verbatim {
			line = ".PP"
		} else {
			line = roff(line)
		}
		b.WriteString(line + "\n")
	}
	if verbatim {
		b.WriteString(".fi\n")
	}
}

var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// roff writes a line of text so that roff takes nothing in it for a request, and
// changes no quotation mark.
func roff(line string) string {
	var b strings.Builder
	for _, r := range roffEscapes.Replace(line) {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	if strings.HasPrefix(line, ".") {
		return `\&` + b.String()
	}
	return b.String()
}

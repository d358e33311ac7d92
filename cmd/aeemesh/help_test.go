package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the golden files")

// runForTest is the program in this process, without a terminal or an
// environment.
func runForTest(args ...string) (code int, stdout, stderr string) {
	var out, words bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(""), &out, &words, func(string) string { return "" })
	return code, out.String(), words.String()
}

func TestHelpIsGolden(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"", "send", "worker", "worker --help-all", "envelope", "keys new"} {
		name := filepath.Join("testdata", "help", strings.ReplaceAll("aeemesh "+command, " ", "_")+".txt")
		args := strings.Fields(command)
		if !strings.HasSuffix(command, "--help-all") {
			args = append(args, "--help")
		}
		code, got, words := runForTest(args...)
		if code != exitOK || words != "" {
			t.Errorf("%s --help: exit %d, stderr %q", command, code, words)
		}
		if *update {
			if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s --help differs from %s; look, and run with -update:\n%s", command, name, got)
		}
	}
}

// Every command that a user can find has a line about it, an example, and
// fits a terminal.
func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	a := newApp(nil, &bytes.Buffer{}, &bytes.Buffer{}, func(string) string { return "" })
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		path := c.CommandPath()
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short %q", path, c.Short)
		}
		if !strings.Contains(c.Example, "aeemesh") {
			t.Errorf("%s has no example", path)
		}
		_, help, _ := runForTest(append(strings.Fields(path)[1:], "--help")...)
		help = strings.Replace(help, strings.Trim(c.Example, "\n"), "", 1) // to be copied, so it may be wider
		for line := range strings.Lines(help) {
			if len([]rune(strings.TrimRight(line, "\n"))) > 80 {
				t.Errorf("%s: a line of its help is too wide: %s", path, line)
			}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) { // pflag pads by bytes
			if name, _ := pflag.UnquoteUsage(f); len(name) != len([]rune(name)) {
				t.Errorf("%s: the name of --%s's value moves the column beside it: %s", path, f.Name, name)
			}
		})
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(a.root())
}

// The help of a command with many flags fits a screen, shows flags that there are,
// and --help-all has every flag, each in a named group.
func TestBriefHelpFitsAScreen(t *testing.T) {
	t.Parallel()
	_, help, _ := runForTest("worker", "--help")
	if n := strings.Count(help, "\n"); n > 50 {
		t.Errorf("worker --help has %d lines", n)
	}
	for line := range strings.Lines(help) {
		if len([]rune(strings.TrimRight(line, "\n"))) > 80 {
			t.Errorf("worker --help has a line that is too wide: %s", line)
		}
	}
	_, all, _ := runForTest("worker", "--help-all")
	if strings.Contains(all, "\nFlags:\n") {
		t.Error("a flag of worker is in no group of --help-all")
	}
	for _, f := range workerCommon {
		for name, text := range map[string]string{"help": help, "help-all": all} {
			if !strings.Contains(text, "--"+f.name+" ") {
				t.Errorf("worker --%s lacks --%s", name, f.name)
			}
		}
	}
}

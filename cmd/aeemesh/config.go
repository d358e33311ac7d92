package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/config"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/operator"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

func configCommand(a *app) *cobra.Command {
	check := &cobra.Command{
		Use:     "check FILE...",
		Short:   "Check configuration files of workers",
		Long:    "Reads files for \"worker --config\" and reports everything that is wrong, as\nFILE:LINE:COLUMN. Files that they name, such as a catalogue of models, are read\nas the worker reads them. Nothing is started or connected.",
		Example: "  aeemesh config check worker.yaml",
		Args:    outcome.Arguments("FILE..."),
		RunE: a.Do(func(_ context.Context, _ *cobra.Command, args []string) error {
			var bad []error
			for _, name := range args {
				n, err := checkConfig(a, name)
				if err != nil {
					bad = append(bad, err)
					continue
				}
				if a.Term.JSON {
					if err := a.Term.Object(map[string]any{"file": name, "ok": true, "settings": n}); err != nil {
						return err
					}
					continue
				}
				a.Term.Good("%s: ok, %s of the worker itself", name, term.Counted(n, "setting", "settings"))
			}
			if len(bad) == 1 {
				return bad[0]
			}
			return errors.Join(bad...)
		}),
	}
	show := &cobra.Command{
		Use:   "show [WORKER FLAGS]",
		Short: "Show a worker's settings, and where each comes from",
		Long: `Shows the settings that "worker" would have with the same flags, environment and
configuration file, and where each comes from: a flag, a variable, a line of the
file, or the default. Where no value is shown, "worker --help-all" says what the
default is. Secrets are not shown.`,
		Example: `  aeemesh config show --config worker.yaml
  aeemesh config show --config worker.yaml --lease 5s --json | jq .lease`,
		DisableFlagParsing: true,
		RunE: a.Do(func(_ context.Context, cmd *cobra.Command, args []string) error {
			return showConfig(a, cmd, args)
		}),
	}
	schema := &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of a worker's configuration file",
		Long:    "Prints the JSON Schema of the file of \"worker --config\", for editors.",
		Example: "  aeemesh config schema > worker.schema.json",
		Args:    outcome.Arguments(),
		RunE: a.Do(func(_ context.Context, cmd *cobra.Command, _ []string) error {
			w, _ := detachedWorker(a, cmd)
			return a.Term.Object(config.Schema(settings(w), adapters.Sections()))
		}),
	}
	return a.Holder(&cobra.Command{
		Use:   "config",
		Short: "Configuration files of workers",
		Long: `The file of "worker --config" (or $AEEMESH_CONFIG) says what agents may have.
Its section worker has the worker's flags: --max-timeout is max_timeout. A flag
wins over the environment, the environment over the file.`,
		Example: "  aeemesh config check worker.yaml",
	}, check, show, schema)
}

// detachedWorker is a worker's command with the flags of all commands, to look at
// flags: it is not run.
func detachedWorker(a *app, cmd *cobra.Command) (*cobra.Command, *workerFlags) {
	f := &workerFlags{}
	w := a.workerWith(f)
	w.Flags().AddFlagSet(cmd.Root().PersistentFlags())
	return w, f
}

// unnamed stands for the documents when a file is checked that does not name them: the command
// line will name them, or the setting cannot be read.
var unnamed = []string{"FILE"}

// checkConfig says all that is wrong with a file, and how many settings it has.
func checkConfig(a *app, name string) (int, error) {
	// An app of its own, so that the file's settings change nothing here.
	env := func(string) string { return "" }
	b := newApp(nil, io.Discard, io.Discard, env)
	b.ByFile = map[string]string{}
	w, f := detachedWorker(b, b.root())
	data, err := a.ReadFile(name, config.MaxFile+1)
	if err != nil {
		return 0, err
	}
	values, err := config.Read(name, data, settings(w))
	misread := config.Problems(err)
	for _, v := range values {
		if v.Secret { // the file may not be here
			continue
		}
		if err := b.applySetting(w, name, v); err != nil {
			misread = append(misread, at(name, v, err))
		}
	}
	bad := operator.Of(w, name).Problems(a.App, data, misread)
	documents := b.Documents
	if len(documents) == 0 && f.command == "" {
		documents = unnamed
	}
	bad = append(bad, flagProblems(name, values, b.checkWorker(w, f, documents))...)
	return len(values), config.Join(bad)
}

// flagProblems returns the problems of flags whose values come from a file, with their lines.
func flagProblems(name string, values []config.Value, err error) (out []*config.Problem) {
	var usage *outcome.UsageError // the command itself was used correctly
	if !errors.As(err, &usage) {
		return nil
	}
	for _, text := range strings.Split(usage.Err.Error(), "\n") {
		p := &config.Problem{File: name, Message: text}
		for _, v := range values {
			if rest, ok := strings.CutPrefix(text, "--"+v.Flag); ok && strings.ContainsAny(rest[:min(1, len(rest))], " :,") {
				p.Line, p.Column = v.Line, v.Column
			}
		}
		out = append(out, p)
	}
	return out
}

// placed adds the places in the file of --config to the errors about flags, and adds the file's
// other problems.
func (a *app) placed(cmd *cobra.Command, flagErr error) error {
	name := cmd.Flags().Lookup("config").Value.String()
	if name == "" {
		return flagErr
	}
	data, err := a.ReadFile(name, config.MaxFile+1)
	if err != nil { // the file existed a moment ago
		return cmp.Or(flagErr, err)
	}
	values, _ := config.Read(name, data, settings(cmd))
	values = slices.DeleteFunc(values, func(v config.Value) bool { return a.ByFile[v.Flag] == "" })
	bad := operator.Of(cmd, name).Problems(a.App, data, a.misread)
	for _, p := range flagProblems(name, values, flagErr) {
		if p.Line == 0 {
			p.File = "flags"
		}
		bad = append(bad, p)
	}
	if !slices.ContainsFunc(bad, func(p *config.Problem) bool { return p.File != "flags" }) {
		return flagErr
	}
	return operator.ConfigError(cmd, name, bad)
}

// shownSetting is a setting as "config show" tells it.
type shownSetting struct {
	Name   string `json:"name"` // in the file
	Value  string `json:"value"`
	Source string `json:"source"`
}

// showConfig shows the settings of a worker with these arguments.
func showConfig(a *app, cmd *cobra.Command, args []string) error {
	w, _ := detachedWorker(a, cmd)
	if err := w.ParseFlags(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			printHelp(a.App, cmd, false)
			return nil
		}
		return outcome.WrongFlag(cmd, err)
	}
	if help := w.Flags().Lookup("help"); help != nil && help.Changed {
		printHelp(a.App, cmd, false)
		return nil
	}
	if err := a.FromEnvironment(w); err != nil {
		return err
	}
	if err := a.fromFile(w); err != nil {
		return err
	}
	if len(a.misread) > 0 {
		return a.placed(w, nil)
	}
	if files := w.Flags().Args(); len(files) > 0 {
		a.Documents = files
		delete(a.ByFile, settingDocuments)
	}
	var out []shownSetting
	for _, s := range settings(w) {
		out = append(out, settingShown(a, w, s))
	}
	if a.Term.JSON {
		byName := make(map[string]any, len(out))
		for _, s := range out {
			byName[s.Name] = map[string]string{"value": s.Value, "source": s.Source}
		}
		return a.Term.Object(byName)
	}
	rows := make([][]string, len(out))
	for i, s := range out {
		rows[i] = []string{s.Name, s.Value, s.Source}
	}
	a.Term.Table([]string{"setting", "value", "from"}, rows)
	return nil
}

// settingShown is one setting of a worker.
func settingShown(a *app, w *cobra.Command, s config.Setting) shownSetting {
	out := shownSetting{Name: s.Key(), Source: "default"}
	if place := a.ByFile[s.Flag]; place != "" {
		out.Source = place
	}
	if s.Flag == settingDocuments {
		if out.Value = strings.Join(a.Documents, " "); out.Source == "default" && out.Value != "" {
			out.Source = "arguments"
		}
		return out
	}
	f := w.Flag(s.Flag)
	values := []string{f.Value.String()}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		values = list.GetSlice()
	}
	for i, v := range values {
		values[i] = withoutSecrets(f.Name, v)
	}
	out.Value = strings.Join(values, ", ")
	switch {
	case f.Changed:
		out.Source = "flag --" + f.Name
	case a.ByEnv[f.Name]:
		out.Source = "environment " + f.Annotations[session.AnnotEnv][0]
	}
	if out.Source == "default" && (out.Value == "0" || out.Value == "0s") && strings.Contains(f.Usage, "(default ") {
		out.Value = "" // the usage text says what the default is; an explicit 0 may mean something else
	}
	switch {
	case s.Secret && out.Value != "":
		out.Value = "(not shown)"
	case s.Flag == "nats" && out.Value != "":
		out.Value = session.RedactedURL(out.Value)
	}
	return out
}

// withoutSecrets returns a value of a flag without what may be a secret in it: the user of a
// URL, the value of a variable, a secret in place of a reference to it.
func withoutSecrets(flag, value string) string {
	if value != "" && slices.Contains(referenceFlags, flag) && !strings.HasPrefix(value, "env:") && !strings.HasPrefix(value, "file:") {
		return "(not shown)"
	}
	if name, _, given := strings.Cut(value, "="); given && flag == "program-env" {
		return name + "=(not shown)"
	}
	return userOfURL.RE().ReplaceAllString(value, "://")
}

var userOfURL = pattern.Of(`://[^/?#\s]*@`)

package operator

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/config"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope/pattern"
	"github.com/aeemesh/aeemesh/intents/template"
)

// Flags are the flags with which an operator permits what documents may
// use.
type Flags struct {
	File            string   // --config
	Allow           []string // hosts that documents may name
	private, files  []string
	mcp             []string
	env, programEnv []string
}

// Add adds all of them.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.File, "config", "", "`FILE` (YAML) of what agents may have here: endpoints, servers, secrets, models, budgets; and, in section worker, of the worker's own flags")
	flags.StringArrayVar(&f.Allow, "allow", nil, "`HOST` that documents' tools may reach, and definitions of subagents be fetched from: host, host:port, *.domain, or a URL to begin with; plain http only as http://…; repeatable")
	flags.StringArrayVar(&f.private, "allow-private", nil, "`ADDRESS`, block or host in private space that they may connect to; repeatable")
	flags.StringArrayVar(&f.mcp, "mcp", nil, "`NAME=COMMAND` or NAME=URL of an MCP server, which documents name as mcp://NAME/TOOL; repeatable")
	flags.StringArrayVar(&f.files, "allow-file", nil, "`PATH` of a file, or a folder of files, that their tools (OpenAPI) and subagents may be described in; repeatable")
	flags.StringArrayVar(&f.env, "allow-env", nil, "`NAME` of a variable that their tools may take a credential from (env_var), or a pattern like BILLING_*; repeatable (default none)")
	flags.StringArrayVar(&f.programEnv, "program-env", nil, "`NAME` of a variable that programs (--tool, --exec) get beside PATH, HOME and the like, or NAME=value; repeatable (default none)")
}

// Of returns the values of these flags of a worker's command, with the file.
func Of(cmd *cobra.Command, file string) *Flags {
	values := func(flag string) []string {
		list, err := cmd.Flags().GetStringArray(flag)
		if err != nil {
			panic("aeemesh: " + err.Error()) // the command has been given them
		}
		return list
	}
	return &Flags{File: file, Allow: values("allow"), private: values("allow-private"), files: values("allow-file"), mcp: values("mcp"),
		env: values("allow-env"), programEnv: values("program-env")}
}

// Adapters makes the adapters of a command's agents. The caller must close
// them.
func (f *Flags) Adapters(a *session.App, cmd *cobra.Command) (*adapters.Set, error) {
	var data []byte
	if f.File != "" {
		var err error
		if data, err = a.ReadFile(f.File, adapters.MaxConfig+1); err != nil {
			return nil, err
		}
	}
	cfg, err := adapters.Read(data)
	if err == nil {
		err = f.amend(&cfg)
	}
	if err == nil {
		var set *adapters.Set
		if set, err = adapters.New(cfg, options(a, a.Log)); err == nil {
			return set, nil
		}
	}
	if bad := f.sectionProblems(a, data); len(bad) > 0 {
		return nil, ConfigError(cmd, f.File, bad)
	}
	return nil, outcome.Usagef(cmd, "%w", err) // a file that it names has changed in between
}

// Filler makes the model of this name that fills in templates; config is the value of
// --config. done ends the model.
func Filler(a *session.App, cmd *cobra.Command, config, name string) (m template.Model, done func(), err error) {
	set, err := (&Flags{File: config}).Adapters(a, cmd)
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = set.Close() } // it has models only
	filler, err := set.Filler(name, agents.Options{Logger: a.Log})
	if err != nil {
		done()
		return nil, nil, outcome.Usagef(cmd, "--model %w", err)
	}
	return filler, done, nil
}

// Learning puts the section learning of a worker's configuration into to, and returns the
// name of its model, which is not made.
func Learning(a *session.App, cmd *cobra.Command, file string, to *learn.Config) (model string, err error) {
	raw, err := a.ReadFile(file, adapters.MaxConfig+1)
	if err != nil {
		return "", err
	}
	cfg, err := adapters.Read(raw)
	if err == nil {
		err = cfg.Learning.Apply(to)
	}
	if err != nil {
		return "", outcome.Usagef(cmd, "%s: %w", file, err)
	}
	return cfg.Learning.Model, nil
}

// amend adds what the flags say to a configuration.
func (f *Flags) amend(cfg *adapters.Config) error {
	cfg.Outbound.Allow = append(cfg.Outbound.Allow, f.Allow...)
	cfg.Outbound.Private = append(cfg.Outbound.Private, f.private...)
	cfg.Outbound.Files = append(cfg.Outbound.Files, f.files...)
	cfg.Secrets.Env = append(cfg.Secrets.Env, f.env...)
	cfg.Programs.Env = append(cfg.Programs.Env, f.programEnv...)
	return mcpServers(cfg, f.mcp)
}

func options(a *session.App, log *slog.Logger) adapters.Options {
	return adapters.Options{
		Version: a.Version,
		Env:     func(name string) (string, bool) { v := a.Env(name); return v, v != "" },
		Logger:  log,
	}
}

// sectionProblems returns the problems of a configuration file together with a command's flags,
// except those of its section worker.
func (f *Flags) sectionProblems(a *session.App, data []byte) (out []*config.Problem) {
	var unamended error
	amend := func(cfg *adapters.Config) { unamended = f.amend(cfg) }
	for _, p := range adapters.Check(data, amend, options(a, nil)) {
		q := &config.Problem{File: f.File, Line: p.Line, Column: p.Column, Message: p.Message}
		if p.Line == 0 && p.Pointer != "" {
			q.File = "configuration" // the value comes from a flag
		}
		out = append(out, q)
	}
	if unamended != nil {
		out = append(out, &config.Problem{File: "flags", Message: unamended.Error()})
	}
	return out
}

// Problems returns all problems of a configuration file; misread are those of its section worker.
func (f *Flags) Problems(a *session.App, data []byte, misread []*config.Problem) []*config.Problem {
	out := f.sectionProblems(a, data)
	for _, p := range misread {
		// Both readers refuse a file that is no YAML at all.
		if !slices.ContainsFunc(out, func(q *config.Problem) bool { return q.Line == p.Line && q.Column == p.Column }) {
			out = append(out, p)
		}
	}
	return out
}

// ConfigError returns the error of a command whose configuration file, or a flag that adds to it, is
// wrong.
func ConfigError(cmd *cobra.Command, name string, bad []*config.Problem) error {
	e := &outcome.UsageError{Err: config.Join(bad), Cmd: cmd}
	if slices.ContainsFunc(bad, func(p *config.Problem) bool { return p.File == name }) {
		e.Hint = fmt.Sprintf("\"aeemesh config check %s\" says all that is wrong, without starting anything.", name)
	}
	return e
}

// mcpServers adds the servers that --mcp names.
func mcpServers(cfg *adapters.Config, specs []string) error {
	for _, spec := range specs {
		name, where, ok := strings.Cut(spec, "=")
		if !ok || name == "" || where == "" {
			return fmt.Errorf("--mcp %q: it is NAME=COMMAND or NAME=URL", spec)
		}
		if _, taken := cfg.MCPServers[name]; taken {
			return fmt.Errorf("--mcp %s: a server of this name is configured already", name)
		}
		server := mcp.Server{URL: where}
		if !mcpAddress.RE().MatchString(where) {
			command, err := agents.SplitCommand(where)
			if err != nil {
				return fmt.Errorf("--mcp %s: %w", name, err)
			}
			server = mcp.Server{Command: command}
		}
		if err := server.Check(); err != nil {
			return fmt.Errorf("--mcp %s: %w", name, err)
		}
		if cfg.MCPServers == nil {
			cfg.MCPServers = make(map[string]mcp.Server)
		}
		cfg.MCPServers[name] = server
	}
	return nil
}

var mcpAddress = pattern.Of(`^(https?|wss?)://`)

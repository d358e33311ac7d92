package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
)

// operatorFlags are the flags with which an operator permits what documents may
// use.
type operatorFlags struct {
	file                  string
	allow, private, files []string
	mcp                   []string
	env, programEnv       []string
}

func (f *operatorFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "config", "", "`FILE` (YAML) of what agents may have here: endpoints, servers, secrets, models, budgets; and, in section worker, of the worker's own flags")
	flags.StringArrayVar(&f.allow, "allow", nil, "`HOST` that documents' tools may reach, and definitions of subagents be fetched from: host, host:port, *.domain, or a URL to begin with; plain http only as http://…; repeatable")
	flags.StringArrayVar(&f.private, "allow-private", nil, "`ADDRESS`, block or host in private space that they may connect to; repeatable")
	flags.StringArrayVar(&f.mcp, "mcp", nil, "`NAME=COMMAND` or NAME=URL of an MCP server, which documents name as mcp://NAME/TOOL; repeatable")
	flags.StringArrayVar(&f.files, "allow-file", nil, "`PATH` of a file, or a folder of files, that their tools (OpenAPI) and subagents may be described in; repeatable")
	flags.StringArrayVar(&f.env, "allow-env", nil, "`NAME` of a variable that their tools may take a credential from (env_var), or a pattern like BILLING_*; repeatable (default none)")
	flags.StringArrayVar(&f.programEnv, "program-env", nil, "`NAME` of a variable that programs (--tool, --exec) get beside PATH, HOME and the like, or NAME=value; repeatable (default none)")
}

// adapters makes the adapters of a command's agents. The caller must close
// them.
func (a *app) adapters(cmd *cobra.Command, f *operatorFlags) (*adapters.Set, error) {
	var cfg adapters.Config
	if f.file != "" {
		data, err := a.ReadFile(f.file, adapters.MaxConfig+1)
		if err != nil {
			return nil, err
		}
		if cfg, err = adapters.Read(data); err != nil {
			return nil, outcome.Usagef(cmd, "%s: %w", f.file, err)
		}
	}
	cfg.Outbound.Allow = append(cfg.Outbound.Allow, f.allow...)
	cfg.Outbound.Private = append(cfg.Outbound.Private, f.private...)
	cfg.Outbound.Files = append(cfg.Outbound.Files, f.files...)
	if err := mcpServers(&cfg, f.mcp); err != nil {
		return nil, outcome.Usagef(cmd, "%w", err)
	}
	cfg.Secrets.Env = append(cfg.Secrets.Env, f.env...)
	cfg.Programs.Env = append(cfg.Programs.Env, f.programEnv...)
	set, err := adapters.New(cfg, adapters.Options{
		Version: version(),
		Env:     func(name string) (string, bool) { v := a.Env(name); return v, v != "" },
		Logger:  a.Log,
	})
	if err != nil {
		return nil, outcome.Usagef(cmd, "%w", err)
	}
	return set, nil
}

// mcpServers adds the servers that --mcp names.
func mcpServers(cfg *adapters.Config, specs []string) error {
	for _, spec := range specs {
		name, where, ok := strings.Cut(spec, "=")
		if !ok || name == "" || where == "" {
			return fmt.Errorf("--mcp %q: it is NAME=COMMAND or NAME=URL", spec)
		}
		if _, taken := cfg.MCPServers[name]; taken {
			return fmt.Errorf("--mcp %s: there is one of this name", name)
		}
		server := mcp.Server{URL: where}
		if !mcpAddress.MatchString(where) {
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

var mcpAddress = regexp.MustCompile(`^(https?|wss?)://`)

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/definitions"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/operator"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// toolEntries holds the result of checking one document's tools.
type toolEntries struct {
	File  string      `json:"file"`
	Agent string      `json:"agent"`
	Tools []toolEntry `json:"tools"`
}

// toolEntry is an entry of a document's tools[], or one of the several tools
// that an entry stands for.
type toolEntry struct {
	Name        string        `json:"name"`
	Entry       string        `json:"entry,omitempty"` // the entry to which it belongs, if that has another name
	Protocol    aaif.Protocol `json:"protocol"`
	Endpoint    string        `json:"endpoint,omitempty"`
	Offered     bool          `json:"offered"`
	Why         string        `json:"why,omitempty"` // why it is not offered
	Description string        `json:"description,omitempty"`
	RepeatSafe  bool          `json:"repeat_safe,omitempty"`
}

// toolsPatience bounds how long the tools of one entry may take to be listed.
const toolsPatience = 30 * time.Second

func (a *app) toolsCommand() *cobra.Command {
	var allowed operator.Flags
	var functions []string
	var offline bool
	c := &cobra.Command{
		Use:   "tools FILE...",
		Short: "List the tools that an agent's document really gives here",
		Long: `Lists what a worker with the same flags would offer to the model of each
document: every tool by the name the model sees, its protocol and endpoint, and
whether it is offered or why not. MCP servers of the operator's list are started
or connected to, to list their tools; no tool is called. With --offline they are
not: an entry that stands for several tools is then one line.

Exit 1 if a tool of a document is not offered.`,
		Example: `  aeemesh tools agent.yaml --config worker.yaml
  aeemesh tools agent.yaml --mcp github='github-mcp-server stdio' --allow api.example.com
  aeemesh tools agent.yaml --json | jq '.tools[] | select(.offered | not)'`,
		Args: outcome.Arguments("FILE..."),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) (err error) {
			set, err := allowed.Adapters(a.App, cmd)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, set.Close()) }()
			registry, err := a.programTools(cmd, functions, set)
			if err != nil {
				return err
			}
			missing := 0
			var docs []*aaif.Document
			for _, name := range args {
				doc, err := definitions.Read(a.App, name)
				if err != nil {
					return err
				}
				docs = append(docs, doc)
			}
			if err := checkTools(cmd, functions, docs); err != nil {
				return err
			}
			for i, name := range args {
				t := toolsOf(ctx, name, docs[i].Definition(), set, registry, offline)
				for _, entry := range t.Tools {
					if !entry.Offered {
						missing++
					}
				}
				if err := a.printTools(t); err != nil {
					return err
				}
			}
			if missing > 0 {
				a.Term.Say("%s not offered", term.Counted(missing, "tool is", "tools are"))
				return outcome.ErrQuiet
			}
			return nil
		}),
	}
	allowed.Add(c.Flags())
	c.Flags().StringArrayVar(&functions, "tool", nil, "`NAME=COMMAND` behind the function tool NAME; repeatable")
	c.Flags().BoolVar(&offline, "offline", false, "reach and start nothing")
	return c
}

// toolsOf checks the tools of one document.
func toolsOf(ctx context.Context, name string, def *aaif.Definition, set *adapters.Set, registry *tool.Registry, offline bool) toolEntries {
	out := toolEntries{File: name, Agent: def.Agent.Name, Tools: []toolEntry{}}
	taken := make(map[string]bool)
	owner := make(map[string]int) // of the names in the document, as in a run: the entry, from 1
	entries := make([][]toolEntry, len(def.Agent.Tools))
	for i := range def.Agent.Tools {
		entries[i] = toolsOfEntry(ctx, &def.Agent.Tools[i], set, registry, offline)
		if name := def.Agent.Tools[i].Name; slices.ContainsFunc(entries[i], func(t toolEntry) bool { return t.Name == name }) {
			owner[name] = i + 1
		}
	}
	for i := range entries {
		for _, t := range entries[i] {
			switch {
			case !t.Offered:
			case taken[t.Name], owner[t.Name] > 0 && owner[t.Name] != i+1:
				t.Offered, t.Why = false, "another tool has its name"
			default:
				taken[t.Name] = true
			}
			out.Tools = append(out.Tools, t)
		}
	}
	return out
}

// toolsOfEntry checks one entry.
func toolsOfEntry(ctx context.Context, entry *aaif.Tool, set *adapters.Set, registry *tool.Registry, offline bool) []toolEntry {
	schemas := new(schema.Pool)
	base := toolEntry{Name: entry.Name, Protocol: entry.EffectiveProtocol(), Endpoint: entry.Endpoint, Description: entry.Description}
	refused := func(err error) []toolEntry {
		base.Why = term.OneLine(err.Error())
		return []toolEntry{base}
	}
	if base.Protocol == aaif.ProtocolFunction {
		function, err := registry.Lookup(entry.Name)
		if err != nil {
			return refused(errors.New("no function of this name is registered; --tool names a program"))
		}
		return []toolEntry{guarded(base, function, schemas, tool.Definition{Name: entry.Name, Description: entry.Description,
			Parameters: entry.ParametersSchema, Output: entry.OutputSchema})}
	}
	source, err := set.Open(entry)
	if err != nil {
		return refused(err)
	}
	defer func() { _ = source.Close() }() // no tool was called
	if offline {
		base.Offered = true
		return []toolEntry{base}
	}
	ctx, cancel := context.WithTimeout(ctx, toolsPatience)
	defer cancel()
	tools, err := source.Tools(ctx)
	if err != nil {
		var e *tool.Error
		if errors.As(err, &e) {
			err = errors.New(e.Message)
		}
		return refused(err)
	}
	if len(tools) == 0 {
		return refused(errors.New("it offers no tools"))
	}
	var out []toolEntry
	for _, t := range tools {
		own := base
		if d := t.Definition(); d.Name != entry.Name {
			own.Name, own.Entry, own.Description = d.Name, entry.Name, d.Description
		}
		out = append(out, guarded(own, t, schemas, tool.Definition{}))
	}
	return out
}

// guarded checks whether a tool can be offered with its schemas.
func guarded(e toolEntry, t tool.Tool, schemas *schema.Pool, d tool.Definition) toolEntry {
	_, err := tool.Guard(t, tool.Options{Definition: d, Compile: tool.Within(schemas)})
	if err != nil {
		e.Why = term.OneLine(err.Error())
		return e
	}
	e.Offered, e.RepeatSafe = true, tool.IsRepeatSafe(t)
	return e
}

func (a *app) printTools(t toolEntries) error {
	if a.Term.JSON {
		return a.Term.Object(t)
	}
	if len(t.Tools) == 0 {
		a.Term.Say("%s declares no tools", t.File)
		return nil
	}
	var rows [][]string
	for _, e := range t.Tools {
		offered := "yes"
		if !e.Offered {
			offered = "no: " + e.Why
		}
		rows = append(rows, []string{term.OneLine(e.Name), string(e.Protocol), term.OneLine(e.Endpoint), offered})
	}
	a.Term.Table([]string{"tool", "protocol", "endpoint", "offered"}, rows)
	return nil
}

// checkTools refuses --tool programs whose function no document declares;
// otherwise a misspelt name would have no effect.
func checkTools(cmd *cobra.Command, specs []string, docs []*aaif.Document) error {
	var declared, others []string
	for _, doc := range docs {
		for _, t := range doc.Definition().Agent.Tools {
			if t.EffectiveProtocol() == aaif.ProtocolFunction {
				declared = append(declared, t.Name)
			} else {
				others = append(others, t.Name)
			}
		}
	}
	for _, spec := range specs {
		name, _, _ := strings.Cut(spec, "=")
		if slices.Contains(declared, name) {
			continue
		}
		err := &outcome.UsageError{Err: fmt.Errorf("--tool %s: no document declares a function tool of this name", name), Cmd: cmd}
		switch near := aaif.Nearest(name, declared); {
		case slices.Contains(others, name):
			err.Hint = "The tool of that name has another protocol than function, and needs no program."
		case near != "":
			err.Hint = fmt.Sprintf("Did you mean %s?", near)
		case len(declared) > 0:
			err.Hint = "Declared are " + strings.Join(slices.Compact(slices.Sorted(slices.Values(declared))), ", ") + "."
		}
		return err
	}
	return nil
}

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
)

// printHelp prints a command's --help. Asked for, it is data; as part of an error
// it is not printed at all (see outcome.UsageError). Of a command with common flags (see
// briefHelp) it prints only these, unless all are asked for.
func printHelp(a *session.App, cmd *cobra.Command, all bool) {
	var b strings.Builder
	about := cmp.Or(cmd.Long, cmd.Short)
	b.WriteString(strings.TrimSpace(about) + "\n")
	if more := cmd.Annotations[annotMore]; all && more != "" {
		b.WriteString("\n" + strings.TrimSpace(more) + "\n")
	}
	heading := func(s string) { b.WriteString("\n" + string(a.Term.Data.Paint(term.StyleStrong, s)) + "\n") }

	heading("Usage:")
	use := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		use = cmd.CommandPath() + " COMMAND"
	}
	b.WriteString("  " + use + "\n")
	if cmd.Example != "" {
		heading("Examples:")
		b.WriteString(strings.Trim(cmd.Example, "\n") + "\n")
	}
	helpCommands(&b, cmd, heading)
	if all || !helpBriefly(&b, cmd, heading) {
		helpFlags(&b, cmd, heading)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\"%s COMMAND --help\" says more about a command.\n", cmd.CommandPath())
	}
	fmt.Fprint(a.Term.Data, b.String())
}

func helpCommands(b *strings.Builder, cmd *cobra.Command, heading func(string)) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	list := func(title, id string) {
		printed := false
		for _, c := range cmd.Commands() {
			if !c.IsAvailableCommand() && c.Name() != "help" || c.GroupID != id || c.Name() == "help" {
				continue
			}
			if !printed {
				heading(title)
				printed = true
			}
			fmt.Fprintf(b, "  %-*s  %s\n", cmd.NamePadding(), c.Name(), c.Short)
		}
	}
	for _, g := range cmd.Groups() {
		list(g.Title, g.ID)
	}
	list("Commands:", "")
}

// helpFlags prints the flags by section, those for connections only if the
// command connects.
func helpFlags(b *strings.Builder, cmd *cobra.Command, heading func(string)) {
	sections := map[string]*pflag.FlagSet{}
	order := []string{""} // of the command's own sections
	add := func(section string, f *pflag.Flag) {
		if sections[section] == nil {
			if !slices.Contains([]string{"", session.GroupSign, session.GroupConnect, session.GroupGlobal}, section) {
				order = append(order, section)
			}
			sections[section] = pflag.NewFlagSet(section, pflag.ContinueOnError)
			sections[section].SortFlags = false
		}
		sections[section].AddFlag(f)
	}
	root := cmd.Root()
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "help-all" || root.PersistentFlags().Lookup(f.Name) == f {
			return
		}
		section := ""
		if g := f.Annotations[session.AnnotGroup]; len(g) > 0 {
			section = g[0]
		}
		add(section, f)
	})
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		section := session.GroupGlobal
		if g := f.Annotations[session.AnnotGroup]; len(g) > 0 {
			section = g[0]
		}
		if section == session.GroupConnect && cmd != root && cmd.Annotations[session.GroupConnect] == "" {
			return
		}
		add(section, f)
	})
	for _, section := range append(order, session.GroupSign, session.GroupConnect, session.GroupGlobal) {
		if set := sections[section]; set != nil {
			title := "Flags:"
			if section != "" {
				title = section + ":"
			}
			heading(title)
			b.WriteString(set.FlagUsagesWrapped(80))
		}
	}
}

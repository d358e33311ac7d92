package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
)

// annotMore is a command's annotation: the part of its text that only --help-all
// prints.
const annotMore = "aeemesh.more"

// A commonFlag is one that --help shows of a command with many flags, and in how
// many words.
type commonFlag struct{ name, usage string }

// briefHelp lets a command's --help show these flags only, and gives it --help-all, which
// shows all.
func briefHelp(a *session.App, c *cobra.Command, common []commonFlag) *cobra.Command {
	all := c.Flags().Bool("help-all", false, "show all flags")
	names := make([]string, 0, 2*len(common))
	for _, f := range common {
		names = append(names, f.name, f.usage)
	}
	if err := c.Flags().SetAnnotation("help-all", session.AnnotBrief, names); err != nil {
		panic(err) // it was made above
	}
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if *all {
			printHelp(a, cmd, true)
			return nil
		}
		return run(cmd, args)
	}
	return c
}

// helpBriefly prints the common flags of a command, if it has them.
func helpBriefly(b *strings.Builder, cmd *cobra.Command, heading func(string)) bool {
	all := cmd.Flags().Lookup("help-all")
	if all == nil {
		return false
	}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	set.SortFlags = false
	common := all.Annotations[session.AnnotBrief]
	for i := 0; i+1 < len(common); i += 2 {
		if f := cmd.Flag(common[i]); f != nil {
			shown := *f
			shown.Usage = common[i+1]
			if strings.Contains(shown.Usage, "(default)") {
				shown.DefValue = ""
			}
			set.AddFlag(&shown)
		}
	}
	set.AddFlag(all)
	heading("Common flags:")
	b.WriteString(set.FlagUsages())
	fmt.Fprintf(b, "\n\"%s --help-all\" shows all flags in groups.\n", cmd.CommandPath())
	return true
}

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/config"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
)

// annotSettings is the annotation of a command whose flags may stand in the file of
// --config.
const annotSettings = "aeemesh.settings"

// settingDocuments is the setting that is no flag: the FILEs of a worker.
const settingDocuments = "documents"

// notInFile are flags that make no sense in the file.
var notInFile = []string{"config", "help", "help-all", flagChild}

// secretFlags are flags whose value is a secret. The file names a file that holds it.
var secretFlags = []string{"password", "token"}

// referenceFlags are flags that take env:NAME or file:PATH of a secret, never the secret itself.
var referenceFlags = []string{"state-key", "handoff-bearer"}

// maxSecret is the size of the largest secret that is read from a file, in bytes.
const maxSecret = 64 << 10

// settings are what a file may say of a command's flags.
func settings(cmd *cobra.Command) []config.Setting {
	out := []config.Setting{{Flag: settingDocuments, Kind: config.List, Usage: "The documents to host, where the command line names none."}}
	flagsOf(cmd, func(f *pflag.Flag) {
		if slices.Contains(notInFile, f.Name) {
			return
		}
		_, usage := pflag.UnquoteUsage(f)
		s := config.Setting{Flag: f.Name, Usage: usage, Kind: config.Text, Secret: slices.Contains(secretFlags, f.Name)}
		switch f.Value.Type() {
		case "bool":
			s.Kind = config.Bool
		case "int":
			s.Kind = config.Int
		case "float64":
			s.Kind = config.Float
		case "duration":
			s.Kind = config.Duration
		case "stringArray":
			s.Kind = config.List
		}
		out = append(out, s)
	})
	return out
}

// flagsOf calls f for the flags of a command, those of all commands included.
func flagsOf(cmd *cobra.Command, f func(*pflag.Flag)) {
	seen := map[string]bool{}
	visit := func(flag *pflag.Flag) {
		if !seen[flag.Name] {
			seen[flag.Name] = true
			f(flag)
		}
	}
	cmd.Flags().VisitAll(visit)
	cmd.InheritedFlags().VisitAll(visit)
}

// fromFile sets flags from the file of --config, unless the command line or the environment sets
// them. [app.placed] reports what is wrong with the values.
func (a *app) fromFile(cmd *cobra.Command) error {
	name := cmd.Flags().Lookup("config").Value.String()
	if name == "" {
		return nil
	}
	if name == "-" {
		return outcome.Usagef(cmd, "--config: it cannot be standard input, since it is read more than once")
	}
	data, err := a.ReadFile(name, config.MaxFile+1)
	if err != nil {
		return outcome.Usagef(cmd, "--config: %w", err)
	}
	values, unread := config.Read(name, data, settings(cmd))
	a.ByFile = map[string]string{}
	a.misread = config.Problems(unread)
	for _, v := range values {
		if err := a.applySetting(cmd, name, v); err != nil {
			a.misread = append(a.misread, at(name, v, err))
		}
	}
	return nil
}

// at returns an error about a setting of a file, with its place.
func at(file string, v config.Value, err error) *config.Problem {
	return &config.Problem{File: file, Line: v.Line, Column: v.Column, Message: err.Error()}
}

// applySetting gives a flag the value of the file, unless it is set already.
func (a *app) applySetting(cmd *cobra.Command, file string, v config.Value) error {
	place := file
	if v.Line > 0 {
		place = fmt.Sprintf("%s:%d", file, v.Line)
	}
	if v.Flag == settingDocuments {
		a.Documents, a.ByFile[v.Flag] = v.Values, place
		return nil
	}
	if a.IsSet(cmd, v.Flag) {
		return nil
	}
	values := v.Values
	if v.Secret {
		text, err := a.ReadWhole(values[0], maxSecret)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", config.Section, v.Key(), err)
		}
		values = []string{strings.TrimRight(string(text), "\r\n")}
	}
	for _, text := range values {
		if err := cmd.Flag(v.Flag).Value.Set(text); err != nil {
			return fmt.Errorf("%s.%s: %w", config.Section, v.Key(), err)
		}
	}
	a.ByFile[v.Flag] = place
	return nil
}

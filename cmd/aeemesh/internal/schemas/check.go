package schemas

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents/template"
)

// refused is a template that a check refuses, as --json prints it.
type refused struct {
	File     string             `json:"file"`
	Problems []template.Problem `json:"problems"`
}

func checkCommand(a *session.App) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE|DIR...",
		Short: "Check templates before they are published",
		Long: `Checks schema templates: files, or folders as "worker --templates" takes them:
of files that end in .sdsi.json, or with such a folder for each entity. It
prints all that is wrong with each, and connects to nothing. With --json it
prints an object for each template; those that are refused have problems.`,
		Example: `  aeemesh schema check templates/
  aeemesh schema check flight_booking.sdsi.json`,
		Args: outcome.Arguments("FILE|DIR..."),
		RunE: a.Do(func(_ context.Context, _ *cobra.Command, args []string) error {
			var bad []error
			for _, name := range args {
				all, errs := loadAll(name)
				bad = append(bad, errs...)
				for _, t := range all {
					if a.Term.JSON {
						if err := a.Term.Object(t.Listed()); err != nil {
							return err
						}
						continue
					}
					a.Term.Good("%s: %s, scenario %s, %d %s", name, t.SchemaID, t.Scenario, len(t.Keys), map[bool]string{true: "key", false: "keys"}[len(t.Keys) == 1])
				}
			}
			if a.Term.JSON {
				return printRefused(a, bad)
			}
			return errors.Join(bad...)
		}),
	}
}

// loadAll reads the templates of a file or a folder and, like "worker --templates", those of its
// subfolders that are named after entities.
func loadAll(name string) (all []*template.Template, bad []error) {
	folders := []string{name}
	entries, _ := os.ReadDir(name) // of a file there are none
	for _, entry := range entries {
		own := filepath.Join(name, entry.Name())
		if info, err := os.Stat(own); err == nil && info.IsDir() && subject.ValidateEntity(entry.Name()) == nil {
			folders = append(folders, own)
		}
	}
	for _, folder := range folders {
		some, err := template.Load(folder)
		all = append(all, some...)
		if err != nil {
			bad = append(bad, err)
		}
	}
	if len(all)+len(bad) == 0 {
		bad = append(bad, fmt.Errorf("%s has no files *%s", name, template.Suffix))
	}
	return all, bad
}

// printRefused prints the problems of the templates that are refused, and returns what else
// is wrong.
func printRefused(a *session.App, bad []error) error {
	var others []error
	count := 0
	for _, err := range bad {
		found := refusals(err)
		if len(found) == 0 {
			others = append(others, err)
		}
		for _, e := range found {
			if err := a.Term.Object(refused{e.Subject, e.Problems}); err != nil {
				return err
			}
		}
		count += len(found)
	}
	if count > 0 {
		others = append(others, fmt.Errorf("refused templates: %d", count))
	}
	return errors.Join(others...)
}

// refusals returns the errors about templates in a tree of errors.
func refusals(err error) []*template.Error {
	switch e := err.(type) {
	case *template.Error:
		return []*template.Error{e}
	case interface{ Unwrap() error }:
		return refusals(e.Unwrap())
	case interface{ Unwrap() []error }:
		var all []*template.Error
		for _, sub := range e.Unwrap() {
			all = append(all, refusals(sub)...)
		}
		return all
	}
	return nil
}

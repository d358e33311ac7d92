package conditions

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
)

// Command is "aeemesh condition" with its subcommands.
func Command(a *session.App) *cobra.Command {
	return a.Holder(&cobra.Command{
		Use:   "condition",
		Short: "Try conditions of agent documents, offline",
		Long: `Evaluates conditions as a worker does: those that choose a subagent, delegate a
task, filter events, and ask for a person's approval. docs/conditions.md has the
languages and the value that conditions see.`,
		Example: `  aeemesh condition eval --lang cel --expr 'input.amount > 100.0' order.json
  aeemesh condition eval --batch < cases.jsonl`,
	}, conditionEvalCommand(a))
}

// LanguageHints are the descriptions of the languages in completions.
var LanguageHints = []struct {
	Lang aaif.Language
	Hint string
}{
	{aaif.LangJSONPath, "RFC 9535; true if it selects something"},
	{aaif.LangJMESPath, "true if the result is truthy"},
	{aaif.LangCEL, "Common Expression Language; a boolean"},
	{aaif.LangJSONLogic, "a rule as JSON; true if the result is truthy"},
	{aaif.LangAlways, "true; no expression"},
	{aaif.LangNever, "false; no expression"},
}

func languageNames() string {
	names := make([]string, len(LanguageHints))
	for i, l := range LanguageHints {
		names[i] = string(l.Lang)
	}
	return strings.Join(names, ", ")
}

func conditionEvalCommand(a *session.App) *cobra.Command {
	var lang, expr string
	var batch bool
	c := &cobra.Command{
		Use:   "eval --lang LANG --expr EXPRESSION [FILE]",
		Short: "Evaluate a condition on a JSON value",
		Long: `Prints true or false, alone on a line: whether the JSON value in FILE, or on
standard input, satisfies a condition. An expression that cannot be compiled or
evaluated is an error, exit 1; a worker treats such a condition as unsatisfied.

The whole value is $ in jsonpath, @ in jmespath, and {"var": ""} in jsonlogic;
its members are cel's variables. To see what a worker would say, give it the
value that docs/conditions.md describes: {"input": {…}, "task": {…}, …}.

With --batch, each line of FILE or standard input is a JSON object with lang,
expr and data, and each line printed is {"result": true}, {"result": false} or
{"error": "…"}, in the same order, one for each line. An expression is compiled
once. A line that is wrong or blank is an error of its own, and not of the
command; other members of a line are ignored.`,
		Example: `  echo '{"input": {"amount": 250}}' | aeemesh condition eval --lang cel --expr 'input.amount > 100.0'
  aeemesh condition eval --lang jsonpath --expr '$.items[?@.price > 10]' order.json
  aeemesh condition eval --lang jmespath --expr 'items[?price > ` + "`10`" + `]' order.json
  aeemesh condition eval --lang jsonlogic --expr '{">": [{"var": "input.amount"}, 100]}' task.json
  echo '{"lang": "cel", "expr": "n > 1", "data": {"n": 2}}' | aeemesh condition eval --batch`,
		Args: outcome.Arguments("[FILE]"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			file := "-"
			if len(args) == 1 {
				file = args[0]
			}
			switch {
			case batch && (a.IsSet(cmd, "lang") || a.IsSet(cmd, "expr")):
				return outcome.Usagef(cmd, "with --batch, each line has its own lang and expr")
			case batch:
				return conditionBatch(a, ctx, file)
			case lang == "":
				return outcome.Usagef(cmd, "--lang is missing: it is one of %s", languageNames())
			}
			return conditionEval(a, ctx, cmd, aaif.Language(lang), expr, file, len(args) == 1)
		}),
	}
	c.Flags().StringVarP(&lang, "lang", "l", "", "the `language`: "+languageNames())
	c.Flags().StringVarP(&expr, "expr", "e", "", "the `expression`; a rule in JSON for jsonlogic, nothing for always and never")
	c.Flags().BoolVar(&batch, "batch", false, "read one case a line, and print one verdict a line")
	return c
}

// conditionEval evaluates one condition on one value.
func conditionEval(a *session.App, ctx context.Context, cmd *cobra.Command, lang aaif.Language, expr, file string, named bool) error {
	constant := lang == aaif.LangAlways || lang == aaif.LangNever
	if !constant && condition.Languages().Has(lang) && !a.IsSet(cmd, "expr") {
		return outcome.Usagef(cmd, "--expr is missing: %s needs an expression", lang)
	}
	p, err := condition.Compile(condition.Expression(lang, expr), condition.Options{})
	if err != nil {
		if errors.Is(err, condition.ErrLanguage) {
			return outcome.Hinted(err, "The languages are %s.", languageNames())
		}
		return err
	}
	var v condition.Value
	if !constant || named {
		data, err := a.ReadFile(file, condition.MaxValue+1)
		if err != nil {
			return err
		}
		if v, err = condition.Parse(data); err != nil {
			return err
		}
	}
	ok, err := p.Eval(ctx, v)
	if err != nil {
		return err
	}
	if a.Term.JSON {
		return a.Term.Object(Verdict{Result: &ok})
	}
	a.Term.Line("%t", ok)
	return nil
}

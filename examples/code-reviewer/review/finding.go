package review

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// Severity says how much a finding matters.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // wrong, or dangerous
	SeverityWarning Severity = "warning" // likely wrong
	SeverityInfo    Severity = "info"    // a matter of form
)

// Finding is one remark of a tool about a file.
type Finding struct {
	File     string   `json:"file"`   // relative to the root, with slashes
	Line     int      `json:"line"`   // from 1
	Column   int      `json:"column"` // in bytes, from 1
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
}

// Report is the result of a checking tool.
type Report struct {
	Files     int       `json:"files"`     // number of files that were read
	Findings  []Finding `json:"findings"`  // in order of place, never null
	Skipped   int       `json:"skipped"`   // files that were too large or too many
	Truncated bool      `json:"truncated"` // whether there were more findings
}

// Review is the result of the agent.
type Review struct {
	Summary  string         `json:"summary"`
	Findings []Finding      `json:"findings"` // the most severe first, never null
	Counts   map[string]int `json:"counts"`   // by severity, and "total"
}

const maxFindings = 500 // a report

// NewReport makes a report of findings, sorted by place and without duplicates. It drops findings
// beyond the limit, and sets Truncated.
func NewReport(files, skipped int, findings []Finding) *Report {
	findings = append([]Finding{}, findings...)
	sorted.By(findings, byPlace)
	r := &Report{Files: files, Skipped: skipped, Findings: slices.Compact(findings)}
	if len(r.Findings) > maxFindings {
		r.Findings, r.Truncated = r.Findings[:maxFindings], true
	}
	return r
}

func byPlace(a, b Finding) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
		cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
}

type summarizeArgs struct {
	Files    int       `json:"files"`
	Findings []Finding `json:"findings"`
}

func summarize(_ context.Context, in summarizeArgs) (*Review, error) {
	order := []Severity{SeverityError, SeverityWarning, SeverityInfo}
	r := &Review{
		Findings: append([]Finding{}, in.Findings...),
		Counts:   map[string]int{"error": 0, "warning": 0, "info": 0},
	}
	sorted.By(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity)), byPlace(a, b))
	})
	r.Findings = slices.Compact(r.Findings) // a syntax error is reported by two tools
	files := make(map[string]bool)
	for _, f := range r.Findings {
		r.Counts[string(f.Severity)]++
		files[f.File] = true
	}
	r.Counts["total"] = len(r.Findings)
	read := ""
	if in.Files > 0 {
		read = fmt.Sprintf(" (%s read)", plural(in.Files, "Go file"))
	}
	if len(r.Findings) == 0 {
		r.Summary = "No findings" + read + "."
		return r, nil
	}
	r.Summary = fmt.Sprintf("%s in %s%s: %s, %s, %d info.", plural(len(r.Findings), "finding"), plural(len(files), "file"), read,
		plural(r.Counts["error"], "error"), plural(r.Counts["warning"], "warning"), r.Counts["info"])
	return r, nil
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

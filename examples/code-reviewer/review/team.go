package review

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"github.com/aeemesh/aeemesh/agents/tool"
)

//go:embed team/*.yaml
var team embed.FS

// TeamLead is the document of the [Team] that the task is sent to.
const TeamLead = "lead.yaml"

// Team returns the documents of the code-review team, by their file names: a swarm of reviewers,
// each with one of the tools, that votes on the severity of its findings; see team/lead.yaml.
func Team() map[string][]byte {
	docs := make(map[string][]byte)
	entries, err := team.ReadDir("team")
	for _, e := range entries {
		if err == nil {
			docs[e.Name()], err = team.ReadFile(path.Join("team", e.Name()))
		}
	}
	if err != nil {
		panic("review: " + err.Error()) // the files are embedded
	}
	return docs
}

// A Grade is the overall severity of findings.
type Grade struct {
	Severity Severity `json:"severity"` // of the most severe finding; "none" if there is none
}

// SeverityNone is the severity of no findings.
const SeverityNone Severity = "none"

// gravest lists the severities, the most severe first.
var gravest = []Severity{SeverityError, SeverityWarning, SeverityInfo, SeverityNone}

type gradeArgs struct {
	Findings []Finding `json:"findings"`
}

func grade(_ context.Context, in gradeArgs) (*Grade, error) {
	g := &Grade{SeverityNone}
	for _, f := range in.Findings {
		if slices.Index(gravest, f.Severity) < slices.Index(gravest, g.Severity) {
			g.Severity = f.Severity
		}
	}
	return g, nil
}

// TeamReview is the result of the [Team].
type TeamReview struct {
	Review
	Severity Severity            `json:"severity"` // the severity that the team voted for, or the most severe one if it did not agree
	Voted    bool                `json:"voted"`    // whether the team agreed
	Said     map[string]Severity `json:"said"`     // the vote of each reviewer, by alias
	Missing  []string            `json:"missing"`  // reviewers without a result, never null
}

type mergeArgs struct {
	Reviews json.RawMessage `json:"reviews"` // a swarm; it may have more members than that
}

// swarm is the part of a synthesizer's payload (docs/orchestration.md) that is used here.
type swarm struct {
	Results []struct {
		Alias  string `json:"alias"`
		Output struct {
			Severity Severity  `json:"severity"`
			Files    int       `json:"files"`
			Findings []Finding `json:"findings"`
		} `json:"output"`
	} `json:"results"`
	Failures []struct {
		Alias string `json:"alias"`
	} `json:"failures"`
	Swarm struct {
		Winner string `json:"winner"`
	} `json:"swarm"`
}

func mergeReviews(ctx context.Context, in mergeArgs) (*TeamReview, error) {
	out := &TeamReview{Severity: SeverityNone, Said: map[string]Severity{}, Missing: []string{}}
	var sent swarm
	if err := json.Unmarshal(in.Reviews, &sent); err != nil {
		return nil, &tool.Error{Kind: tool.ErrInvalidArguments, Tool: "merge_reviews", Message: "reviews are not what a synthesizer is sent", Err: err}
	}
	all := summarizeArgs{}
	for _, r := range sent.Results {
		o := r.Output
		out.Said[r.Alias] = o.Severity
		all.Files = max(all.Files, o.Files)
		all.Findings = append(all.Findings, o.Findings...)
		if slices.Index(gravest, o.Severity) < slices.Index(gravest, out.Severity) {
			out.Severity = o.Severity
		}
	}
	for _, f := range sent.Failures {
		out.Missing = append(out.Missing, f.Alias)
	}
	if s, ok := out.Said[sent.Swarm.Winner]; ok {
		out.Severity, out.Voted = s, true
	}
	review, err := summarize(ctx, all)
	if err != nil {
		return nil, err
	}
	out.Review = *review
	how := "no majority, so the gravest"
	if out.Voted {
		how = "by a majority"
	}
	out.Summary = fmt.Sprintf("%s The team holds it for: %s (%s).", review.Summary, out.Severity, how)
	return out, nil
}

// teamTools are the tools that only the team has.
func teamTools() []tool.Tool {
	return []tool.Tool{
		tool.RepeatSafe(tool.Func(tool.Definition{Name: "grade", Description: "Says how grave findings are together.",
			Parameters: json.RawMessage(`{"type":"object","required":["findings"],"properties":{"findings":{"type":"array","items":` + findingSchema + `}}}`)}, grade)),
		tool.RepeatSafe(tool.Func(tool.Definition{Name: "merge_reviews", Description: "Makes one review of the members' reviews, and of their vote on its severity.",
			Parameters: json.RawMessage(`{"type":"object","required":["reviews"],"properties":{"reviews":{"type":"object"}}}`)}, mergeReviews)),
	}
}

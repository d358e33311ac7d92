package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/condition/conditiontest"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/conditions"
)

// The binary passes the suite that the package passes, case by case and as a
// batch.
func TestConditionEval(t *testing.T) {
	t.Parallel()
	conditiontest.Run(t, func(lang, expr, data string) (bool, error) {
		rule, _ := json.Marshal(expr)
		if lang == "jsonlogic" && json.Valid([]byte(expr)) {
			rule = []byte(expr)
		}
		line, err := json.Marshal(map[string]json.RawMessage{"lang": quoted(lang), "expr": rule, "data": json.RawMessage(data)})
		if err != nil {
			return false, err
		}
		verdict := batch(t, string(line)+"\n")
		if lang == "" { // a hint has no language, and the flag cannot be empty
			return readVerdict(t, verdict)
		}
		args := []string{"condition", "eval", "--lang", lang, "--expr", expr}
		var out, words bytes.Buffer
		code := run(context.Background(), args, strings.NewReader(data), &out, &words, func(string) string { return "" })
		ok, err := readVerdict(t, verdict)
		switch {
		case err != nil && (code != exitFailed || out.String() != "" || !strings.HasPrefix(words.String(), "error: ")):
			t.Errorf("%s: batch says %v, alone it is exit %d, %q, %q", line, err, code, out.String(), words.String())
		case err == nil && (code != exitOK || (out.String() == "true\n") != ok || words.String() != ""):
			t.Errorf("%s: batch says %v, alone it is exit %d, %q, %q", line, ok, code, out.String(), words.String())
		}
		return ok, err
	})
}

func quoted(s string) json.RawMessage { b, _ := json.Marshal(s); return b }

// A driver may print what it reads: a verdict has no character that controls a terminal.
func TestABatchPrintsNoControlCharacters(t *testing.T) {
	t.Parallel()
	const control = "\u007f\u009b\u202e\u200b"
	for _, line := range []map[string]any{
		{"lang": control, "expr": "x"},
		{"lang": "cel", "expr": "nope_" + control},
		{"lang": "jsonpath", "expr": "$" + control},
		{"lang": "jsonlogic", "expr": map[string]any{control: 1}},
	} {
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		got := batch(t, string(text)+"\n")
		var verdict conditions.Verdict
		if err := json.Unmarshal([]byte(got), &verdict); err != nil || verdict.Error == "" || strings.ContainsAny(got, control) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

func batch(t *testing.T, lines string) string {
	t.Helper()
	var out, words bytes.Buffer
	if code := run(context.Background(), []string{"condition", "eval", "--batch"}, strings.NewReader(lines), &out, &words, func(string) string { return "" }); code != exitOK || words.String() != "" {
		t.Fatalf("exit %d, %s", code, words.String())
	}
	return out.String()
}

func readVerdict(t *testing.T, line string) (bool, error) {
	t.Helper()
	var v conditions.Verdict
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if v.Result == nil {
		return false, errors.New(v.Error)
	}
	return *v.Result, nil
}

// A line that is too long is an error of its own; those after it are read.
func TestABatchSurvivesLongLines(t *testing.T) {
	t.Parallel()
	long := `{"lang":"always","data":"` + strings.Repeat("x", conditions.MaxConditionLine) + `"}`
	large := `{"lang":"jsonpath","expr":"$","data":"` + strings.Repeat("x", 200_000) + `"}`
	got := strings.SplitAfter(batch(t, long+"\n"+large+"\n"+`{"lang":"always"}`), "\n")
	if len(got) != 4 || !strings.Contains(got[0], "a line has at most") || got[1] != "{\"result\":true}\n" || got[2] != got[1] {
		t.Errorf("%q", got)
	}
}

// Drivers count lines: whatever a line is, there is one verdict for it, and no
// name of this program's code is in it.
func TestABatchHasAVerdictForEveryLine(t *testing.T) {
	t.Parallel()
	lines := []string{"", " \t", "\r", `{"lang":"always"}`, `{"name":"x"}`, `{"lang":{}}`, `{"lang":null}`, `5`, `null`, `"x"`, `[]`, `true`, `{} {}`, `{"data":`,
		`{"lang":"\ud800"}`, `{"lang":"cel","lang":"cel"}`, `{"":1}`, " "}
	for _, end := range []string{"", "\n"} {
		got := strings.Split(strings.TrimSuffix(batch(t, strings.Join(lines, "\n")+end), "\n"), "\n")
		if len(got) != len(lines) {
			t.Fatalf("%d verdicts on %d lines: %q", len(got), len(lines), got)
		}
		for i, line := range got {
			if ok, err := readVerdict(t, line); (err == nil) != (i == 3) || ok != (i == 3) {
				t.Errorf("%q: %s", lines[i], line)
			}
			if strings.Contains(line, "Go ") || strings.Contains(line, "main.") || strings.Contains(line, "aaif") || strings.Contains(line, "json:") {
				t.Errorf("%q: %s", lines[i], line)
			}
		}
	}
}

// A driver that writes a case and waits for its verdict gets it.
func TestABatchAnswersAtOnce(t *testing.T) {
	t.Parallel()
	lines := make(chan string)
	answers := make(chan string)
	done := make(chan int, 1)
	go func() {
		var words bytes.Buffer
		done <- run(context.Background(), []string{"condition", "eval", "--batch"}, &lineReader{lines: lines}, writerTo(answers), &words, func(string) string { return "" })
	}()
	for range 3 {
		lines <- `{"lang":"cel","expr":"n > 1","data":{"n":2}}` + "\n"
		if got := <-answers; got != "{\"result\":true}\n" {
			t.Errorf("%q", got)
		}
	}
	close(lines)
	if code := <-done; code != exitOK {
		t.Error(code)
	}
}

// lineReader reads a line when there is one.
type lineReader struct{ lines <-chan string }

func (r *lineReader) Read(p []byte) (int, error) {
	line, ok := <-r.lines
	if !ok {
		return 0, io.EOF
	}
	return copy(p, line), nil
}

type writerTo chan<- string

func (w writerTo) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

package conditions

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
)

// Verdict is an output line of "condition eval --batch".
type Verdict struct {
	Result *bool  `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

// conditionCase is an input line. Other members, with which drivers label their
// cases, are ignored.
type conditionCase struct {
	Lang aaif.Language  `json:"lang"`
	Expr jsontext.Value `json:"expr"`
	Data jsontext.Value `json:"data"`
}

// Limits of a batch: the length of a line, and the number of cached programs.
const (
	MaxConditionLine = condition.MaxValue + 4*condition.DefaultMaxSource
	maxPrograms      = 4096
)

// conditionBatch evaluates line by line. It flushes its output whenever no
// further input is available, so that a driver may wait for each verdict.
func conditionBatch(a *session.App, ctx context.Context, file string) error {
	in := a.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	r, w := bufio.NewReaderSize(in, 64<<10), bufio.NewWriterSize(a.Term.Data, 64<<10)
	programs := make(conditionPrograms)
	for n := 1; ; n++ {
		line, err := readLine(r)
		if err != nil && !errors.Is(err, errLongLine) {
			if flushed := w.Flush(); flushed != nil || errors.Is(err, io.EOF) {
				return flushed
			}
			return fmt.Errorf("read line %d: %w", n, err)
		}
		if ctx.Err() != nil {
			return errors.Join(w.Flush(), ctx.Err())
		}
		ok := false
		if err == nil {
			ok, err = programs.judge(ctx, line)
		}
		writeVerdict(w, ok, err)
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		if a.Term.Broken() {
			return nil
		}
	}
}

// writeVerdict writes the line of one verdict, as JSON. It is faster than package encoding/json.
func writeVerdict(w *bufio.Writer, ok bool, err error) {
	line := w.AvailableBuffer()
	if err != nil {
		line = plain.JSON(append(envelope.AppendString(append(line, `{"error":`...), err.Error()), "}\n"...))
	} else {
		line = append(strconv.AppendBool(append(line, `{"result":`...), ok), "}\n"...)
	}
	w.Write(line)
}

// conditionPrograms caches compiled conditions, and the errors of those that do
// not compile, by language and expression.
type conditionPrograms map[string]compiledCondition

type compiledCondition struct {
	program *condition.Program
	err     error
}

func (c conditionPrograms) judge(ctx context.Context, line []byte) (bool, error) {
	var in conditionCase
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return false, fmt.Errorf("%s: it is blank", aConditionLine)
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return false, fmt.Errorf("%s: %s", aConditionLine, lineProblem(err))
	}
	if in.Lang == "" {
		return false, errors.New("lang is missing")
	}
	p, err := c.program(in)
	if err != nil {
		return false, err
	}
	var v condition.Value
	if len(in.Data) > 0 {
		if v, err = condition.Parse(in.Data); err != nil {
			return false, err
		}
	}
	return p.Eval(ctx, v)
}

const aConditionLine = "a line is a JSON object with lang, expr and data"

// lineProblem describes what is wrong with a line without naming Go types,
// which the package's own errors do.
func lineProblem(err error) string {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return strings.NewReplacer("jsontext: ", "", "json: ", "").Replace(err.Error())
	}
	member := semantic.JSONPointer.LastToken()
	switch {
	case semantic.JSONPointer == "":
		return "it is " + kindWords[semantic.JSONKind]
	}
	return member + " cannot be " + kindWords[semantic.JSONKind]
}

var kindWords = map[jsontext.Kind]string{'n': "null", 't': "a boolean", 'f': "a boolean", '"': "a string", '0': "a number", '{': "an object", '[': "an array"}

func (c conditionPrograms) program(in conditionCase) (*condition.Program, error) {
	key := string(in.Lang) + " " + string(in.Expr)
	have, ok := c[key]
	if !ok {
		if len(c) >= maxPrograms {
			clear(c)
		}
		have.program, have.err = condition.Compile(aaif.Condition{Lang: in.Lang, Expr: []byte(in.Expr.Clone())}, condition.Options{})
		c[key] = have
	}
	return have.program, have.err
}

var errLongLine = fmt.Errorf("a line has at most %d bytes", MaxConditionLine)

// readLine reads a line, and skips one that is too long. The line is valid
// until the next call.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		if errors.Is(err, io.EOF) && len(line) > 0 {
			err = nil
		}
		return line, err
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = r.ReadSlice('\n')
		if len(long) <= MaxConditionLine {
			long = append(long, line...)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && len(long) > MaxConditionLine {
		return nil, errLongLine
	}
	return long, err
}

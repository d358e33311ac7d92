package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// stepwise is the program stepwise of the transcripts: an agent that speaks
// lines. It notes each task that it is given in the file NAME.begun, and then
// does what its second argument says:
//
//	held    waits until there is a file NAME.go
//	score   scores the candidate that it is sent by its member n
//	choose  chooses the candidate with the highest n
//	fail    fails for good
//	flaky   fails the first time, so that another try may help
func stepwise() {
	name, how := os.Args[1], ""
	if len(os.Args) > 2 {
		how = os.Args[2]
	}
	in := bufio.NewReader(os.Stdin)
	for given := 1; ; given++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return
		}
		var task struct {
			ID      string          `json:"id"`
			Payload json.RawMessage `json:"payload"`
		}
		if err != nil || json.Unmarshal(line, &task) != nil {
			os.Exit(1)
		}
		begun, err := os.OpenFile(name+".begun", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			os.Exit(1)
		}
		fmt.Fprintln(begun, name)
		begun.Close()
		kind, payload := "result", fmt.Sprintf(`{"by":%q,"given":%s}`, name, task.Payload)
		switch {
		case how == "held":
			for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
				if _, err := os.Stat(name + ".go"); err == nil {
					break
				}
				if _, err := os.Stat(name + ".begun"); err != nil {
					return // the test is over
				}
			}
		case how == "score", how == "choose":
			payload = judged(task.Payload)
		case how == "fail":
			kind, payload = "error", `{"code":"E_OUT_OF_INK","message":"there is no ink","retryable":false}`
		case how == "flaky" && given == 1:
			kind, payload = "error", `{"code":"E_PAPER_JAM","message":"the paper is stuck","retryable":true,"backoff_ms":1}`
		}
		fmt.Printf(`{"type":%q,"reply_to":%q,"payload":%s}`+"\n", kind, task.ID, payload)
	}
}

// judged is an evaluator's or a referee's answer about outputs with a member n.
func judged(payload json.RawMessage) string {
	type output struct {
		N float64 `json:"n"`
	}
	var asked struct {
		Candidate  *output `json:"candidate"`
		Candidates []struct {
			N      int    `json:"n"`
			Output output `json:"output"`
		} `json:"candidates"`
	}
	if json.Unmarshal(payload, &asked) != nil {
		os.Exit(1)
	}
	if asked.Candidate != nil {
		return fmt.Sprintf(`{"score":%g}`, asked.Candidate.N/10)
	}
	best, most := 0, -1.0
	for _, c := range asked.Candidates {
		if c.Output.N > most {
			best, most = c.N, c.Output.N
		}
	}
	return fmt.Sprintf(`{"choice":%d,"reason":"it is the most"}`, best)
}

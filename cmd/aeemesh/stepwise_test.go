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
// lines. It notes each task that it is given in the file NAME.begun, waits
// until there is a file NAME.go if it was told to, and answers.
func stepwise() {
	name, held := os.Args[1], len(os.Args) > 2 && os.Args[2] == "held"
	in := bufio.NewReader(os.Stdin)
	for {
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
		if held {
			for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
				if _, err := os.Stat(name + ".go"); err == nil {
					break
				}
			}
		}
		fmt.Printf(`{"type":"result","reply_to":%q,"payload":{"by":%q,"given":%s}}`+"\n", task.ID, name, task.Payload)
	}
}

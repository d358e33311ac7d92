package agents_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const programEnv = "AEEMESH_TEST_PROGRAM"

// entity is the entity of the test program.
const entity = "agent.program"

// command is what the payload of a task tells the test program to do.
type command struct {
	Do   string `json:"do"`
	Text string `json:"text"`
}

// do is the payload of a task that tells the test program to do that.
func do(what, text string) string {
	raw, _ := json.Marshal(command{what, text})
	return string(raw)
}

// runTestProgram is an agent program. Its mode says how it lives; what it does
// with a task, the task's payload says.
func runTestProgram(mode string) int {
	switch mode {
	case "dead":
		fmt.Fprintln(os.Stderr, "cannot start")
		return 3
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		select {} // never reads, never ends
	}
	fmt.Fprintln(os.Stderr, "ready", os.Getpid())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, waking)
	in := bufio.NewReader(os.Stdin)
	var held []string
	streamed := 0
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if mode == "stubborn" {
				signal.Ignore(syscall.SIGTERM)
				select {}
			}
			return 0
		}
		var task struct {
			ID      string  `json:"id"`
			Payload command `json:"payload"`
			Durable struct {
				Run     string `json:"run"`
				Attempt int    `json:"attempt"`
			} `json:"durable"`
		}
		if err := json.Unmarshal([]byte(line), &task); err != nil {
			fmt.Fprintln(os.Stderr, "bad task:", err)
			continue
		}
		say := func(typ string, payload any) {
			raw, _ := json.Marshal(map[string]any{"type": typ, "reply_to": task.ID, "payload": payload})
			fmt.Println(string(raw))
		}
		switch c := task.Payload; c.Do {
		case "echo":
			say("result", map[string]string{"text": c.Text})
		case "attempt": // leaves a file; dies of the second attempt, and answers the third only
			d := task.Durable
			f, err := os.OpenFile(filepath.Join(c.Text, fmt.Sprintf("%s.%d", d.Run, d.Attempt)), os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				say("result", map[string]int{"again": d.Attempt})
				continue
			}
			f.Close()
			switch d.Attempt {
			case 2:
				return 7
			case 3:
				say("result", map[string]int{"attempt": d.Attempt})
			}
		case "line": // how the task arrived
			say("result", map[string]string{"line": line})
		case "stream":
			for _, w := range strings.Fields(c.Text) {
				say("stream", map[string]string{"text": w})
				streamed++
			}
			say("result", map[string]string{"text": c.Text})
		case "streamed": // how many words it has streamed for all tasks
			say("result", map[string]int{"words": streamed})
		case "error":
			var payload map[string]any
			json.Unmarshal([]byte(c.Text), &payload)
			say("error", payload)
		case "crash":
			return 7
		case "garbage":
			fmt.Println("this is no JSON")
			fmt.Println(`{"type":"result","reply_to":"nobody-asked-this","payload":{}}`)
			fmt.Println(`{"type":"stream","reply_to":"` + task.ID + `","payload":[1]}`)
			fmt.Println(`{"type":"stream","type":"stream","reply_to":"` + task.ID + `","payload":{}}`)
			fmt.Println(strings.Repeat("x", 100_000))
			fmt.Println()
			say("result", map[string]string{"text": "still here"})
			say("result", map[string]string{"text": "twice"})
		case "lines": // writes lines of the sender's choice, then answers
			fmt.Println(c.Text)
			say("result", map[string]string{"text": "answered"})
		case "raw": // answers with a line of the sender's choice
			fmt.Println(strings.ReplaceAll(c.Text, "TASK", task.ID))
		case "type": // answers with a type of the sender's choice
			fmt.Println(`{"type":` + c.Text + `,"reply_to":"` + task.ID + `","payload":{}}`)
		case "handoff":
			say("handoff", json.RawMessage(c.Text))
		case "nonobject":
			say("result", "just text")
		case "hold": // answered by the next release
			held = append(held, task.ID)
			say("stream", map[string]string{"text": "holding"})
		case "release": // answers itself, then what it holds, last one first
			say("result", map[string]string{"text": "released"})
			for i := len(held) - 1; i >= 0; i-- {
				fmt.Printf(`{"type":"result","reply_to":%q,"payload":{"text":"held %d"}}`+"\n", held[i], i)
			}
			held = nil
		case "child": // leaves a process behind that holds our output open
			child, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
			if err != nil {
				say("error", map[string]string{"message": err.Error()})
				continue
			}
			say("result", map[string]int{"pid": child.Pid})
		case "shut": // closes its output and lives on
			os.Stdout.Close()
			if mode == "stubborn" {
				signal.Ignore(syscall.SIGTERM)
				select {}
			}
		case "until_signal":
			say("stream", map[string]string{"text": "waiting"})
			<-signals
			say("result", map[string]string{"text": "signalled"})
		case "pid":
			say("result", map[string]int{"pid": os.Getpid()})
		}
	}
}

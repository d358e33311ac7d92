package handoff_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// Finding 8 of the security review: a source commands the run that it handed over,
// and no other.
func TestACommandIsAboutTheRunOfItsHandoff(t *testing.T) {
	t.Parallel()
	var forwarded [][]byte
	p := newPlatform(t, func(c *handoff.ReceiverConfig, _ *handoff.HandlerOptions) {
		c.Forward = func(_ context.Context, to string, command []byte) ([]byte, error) {
			equal(t, "to", to, entity)
			forwarded = append(forwarded, command)
			return []byte(`{}`), nil
		}
	})
	x, other := p.pack(), p.pack()
	for _, one := range []parcel{x, other} {
		if _, err := p.send(one); err != nil {
			t.Fatal(err)
		}
		if _, err := p.commit(one.id); err != nil {
			t.Fatal(err)
		}
	}
	command := func(intent, payload string, change ...func(*envelope.Envelope)) []byte {
		e := envelope.New(envelope.TypeTask, entity, entity, intent, json.RawMessage(payload))
		for _, f := range change {
			f(e)
		}
		if err := p.signer.Sign(e); err != nil {
			t.Fatal(err)
		}
		raw, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	send := func(raw []byte) error {
		_, err := p.client.Command(context.Background(), x.id, p.request(x.id, handoff.ActionCommand), raw)
		return err
	}
	mine := `"run":"` + x.run + `"`
	for name, raw := range map[string][]byte{
		"another run":            command(intents.TaskCancel, `{"run":"`+other.run+`"}`),
		"a task":                 command(intents.TaskCancel, `{"id":"`+other.taskID+`"}`),
		"a task besides":         command(intents.TaskCancel, `{`+mine+`,"id":"`+other.taskID+`"}`),
		"its own task":           command(intents.TaskCancel, `{"id":"`+x.taskID+`"}`),
		"a correlation":          command(intents.TaskCancel, `{"corr":"somebody-elses"}`),
		"a correlation besides":  command(intents.TaskCancel, `{`+mine+`,"corr":"somebody-elses"}`),
		"another spelling":       command(intents.TaskCancel, `{`+mine+`,"ID":"`+other.taskID+`"}`),
		"an escaped spelling":    command(intents.TaskCancel, `{`+mine+`,"\u0069d":"`+other.taskID+`"}`),
		"another run, respelled": command(intents.TaskCancel, `{`+mine+`,"Run":"`+other.run+`"}`),
		"no run":                 command(intents.TaskCancel, `{}`),
		"a list of runs":         command(intents.TaskCancel, `{"run":["`+x.run+`","`+other.run+`"]}`),
		"a move":                 command(intents.TaskMigrate, `{`+mine+`,"to":"https://rome.example"}`),
		"a move, in a pause":     command(intents.TaskPause, `{`+mine+`,"to":"https://rome.example"}`),
		"an ordinary task":       command("agent.ask", `{`+mine+`}`),
		"a reserved one":         command("aee.context.fetch", `{`+mine+`}`),
		"an event":               command(intents.TaskCancel, `{`+mine+`}`, func(e *envelope.Envelope) { e.Type = envelope.TypeEvent }),
		"for another agent":      command(intents.TaskCancel, `{`+mine+`}`, func(e *envelope.Envelope) { e.To = "agent.bank" }),
		"by another entity":      command(intents.TaskCancel, `{`+mine+`}`, func(e *envelope.Envelope) { e.From = "human.ceo" }),
		"no envelope":            []byte(`{"run":"` + x.run + `"}`),
	} {
		if err := send(raw); !errors.Is(err, transfer.ErrStream) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(forwarded) != 0 {
		t.Fatalf("forwarded: %s", forwarded)
	}
	// What passes is made here: the signature holds where nothing else was in it.
	verifies := func(raw []byte) bool {
		e, err := envelope.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		_, err = sign.Verifier{Ring: p.ring, Mode: sign.Required}.Verify(e, p.now)
		return err == nil
	}
	for intent, rest := range map[string]string{
		intents.TaskCancel: `"reason":"enough","durable":true,"copy_of":"01HZX9Q6W4T2"`,
		intents.TaskPause:  `"reason":"lunch"`,
		intents.TaskResume: `"durable":true`,
		intents.TaskSteer:  `"text":"be brief <&>"`,
		intents.TaskSettle: `"call":"call-1","outcome":"done","result":{"n":1.50},"reason":"seen"`,
	} {
		forwarded = nil
		if err := send(command(intent, `{`+rest+`,`+mine+`}`)); err != nil || len(forwarded) != 1 || !verifies(forwarded[0]) {
			t.Errorf("%s: %v, forwarded %s", intent, err, forwarded)
		}
	}
	forwarded = nil
	odd := command(intents.TaskCancel, `{`+mine+`}`, func(e *envelope.Envelope) {
		e.Requires, e.Extra = json.RawMessage(`{"tree":{"depth":1}}`), []envelope.Member{{Name: "x", Value: json.RawMessage(`1`)}}
	})
	if err := send(odd); err != nil || len(forwarded) != 1 || verifies(forwarded[0]) || strings.Contains(string(forwarded[0]), "tree") {
		t.Errorf("with more in it: %v, forwarded %s", err, forwarded)
	}
}

// A command has one deadline for all of its body: a source that sends a byte now and then is
// cut off, and hears why.
func TestACommandThatComesByteByByteIsCutOff(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, func(c *handoff.ReceiverConfig, _ *handoff.HandlerOptions) { c.Idle = time.Second })
	x := p.accepted()
	// An http.Client may lose the answer when it fails to write the rest of its request.
	conn, err := tls.Dial("tcp", p.server.Listener.Addr().String(), p.server.Client().Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST %s/%s/command HTTP/1.1\r\nHost: paris\r\n%s: %s\r\nTransfer-Encoding: chunked\r\n\r\n", handoff.Path, x.id, handoff.HeaderRequest, p.request(x.id, handoff.ActionCommand)); err != nil {
		t.Fatal(err)
	}
	go func() {
		pause := time.NewTicker(20 * time.Millisecond)
		defer pause.Stop()
		for range pause.C {
			if _, err := conn.Write([]byte("1\r\n \r\n")); err != nil {
				return
			}
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(string(body), "took too long") {
		t.Errorf("%s: %s", resp.Status, body)
	}
}

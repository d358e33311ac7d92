package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

func TestScriptConforms(t *testing.T) {
	t.Parallel()
	modeltest.Run(t, func(t *testing.T, turns ...modeltest.Turn) model.Model {
		script := make([]map[string]any, len(turns))
		for i, turn := range turns {
			script[i] = written(turn)
		}
		extended, err := json.Marshal(map[string]any{"script": script})
		if err != nil {
			t.Fatal(err)
		}
		return scripted{builtin.New(), extended}
	})
}

// scripted always requests the model script.
type scripted struct {
	m        *builtin.Model
	extended json.RawMessage
}

func (s scripted) request(req *model.Request) *model.Request {
	if req == nil {
		return nil
	}
	mine := *req
	mine.Model = builtin.Script
	mine.Params.Extended = s.extended
	return &mine
}

func (s scripted) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	return s.m.Generate(ctx, s.request(req), onDelta)
}

func (s scripted) Continue(ctx context.Context, req *model.Request, told string, onDelta func(model.Delta) error) (*model.Response, error) {
	return s.m.Continue(ctx, s.request(req), told, onDelta)
}

// written converts a turn of the suite to a turn of the script.
func written(t modeltest.Turn) map[string]any {
	out := map[string]any{}
	if t.Text != "" || len(t.Calls) == 0 && t.Fail == nil {
		out["say"] = strings.ReplaceAll(t.Text, "${", "$${")
	}
	if t.Usage != (model.Usage{}) {
		out["usage"] = t.Usage
	}
	if t.Hang {
		if t.Text == "" {
			out["delay_ms"] = 600000
		}
		out["pace_ms"] = 600000
	}
	if t.Fail != nil {
		out["error"] = map[string]any{"kind": t.Fail.Kind, "message": t.Fail.Message, "retry_after_ms": t.Fail.RetryAfter.Milliseconds()}
	}
	var calls []map[string]any
	for _, c := range t.Calls {
		calls = append(calls, map[string]any{"name": c.Name, "arguments": c.Arguments})
	}
	if calls != nil {
		out["call"] = calls
	}
	return out
}

func ask(t *testing.T, req *model.Request) (*model.Response, []string, error) {
	t.Helper()
	var pieces []string
	res, err := builtin.New().Generate(t.Context(), req, func(d model.Delta) error {
		pieces = append(pieces, d.Text)
		return nil
	})
	return res, pieces, err
}

func TestEchoAnswersWithTheLastUserMessage(t *testing.T) {
	t.Parallel()
	payload := `{"text":"one two  three\nfour"}`
	res, pieces, err := ask(t, &model.Request{Model: builtin.Echo, Messages: []model.Message{
		model.System("ignored"), model.User("older"), model.Assistant("older"), model.User(payload)},
		Tools: []model.ToolDef{{Name: "unused"}}})
	if err != nil {
		t.Fatal(err)
	}
	if res.Message.Content != payload || res.Finish != model.FinishStop || res.Model != "echo" {
		t.Errorf("response %+v, want the payload as it is", res)
	}
	if got, want := fmt.Sprintf("%q", pieces), `["{\"text\":\"one " "two " " " "three\\nfour\"}"]`; got != want {
		t.Errorf("streamed %s, want %s", got, want)
	}
	if res.Usage != (model.Usage{InputTokens: 6, OutputTokens: 3}) {
		t.Errorf("usage %+v, want words", res.Usage)
	}
	if res, _, err := ask(t, &model.Request{Model: builtin.Echo, Messages: []model.Message{model.User("")}}); err != nil || res.Message.Content != "" {
		t.Errorf("an empty message: %+v, %v", res, err)
	}
	if _, _, err := ask(t, &model.Request{Model: builtin.Echo, Messages: []model.Message{model.System("x")}}); !errors.Is(err, model.ErrBadRequest) {
		t.Errorf("without a user message: %v", err)
	}
	if _, _, err := ask(t, &model.Request{Model: "gpt", Messages: []model.Message{model.User("x")}}); !errors.Is(err, model.ErrBadRequest) || !strings.Contains(err.Error(), `"echo", "script" and "filler"`) {
		t.Errorf("unknown model: %v", err)
	}
}

// conversation returns a conversation in which two tools have answered.
func conversation() []model.Message {
	call := func(id, name string) model.ToolCall {
		return model.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(`{}`)}
	}
	a, b, c := call("a", "look"), call("b", "count"), call("c", "look")
	unnamed := model.ToolResult(b, json.RawMessage(`42`))
	unnamed.ToolName = "" // found by its call's ID
	return []model.Message{
		model.System("be brief"),
		model.User(`{"path": "src/main.go", "n": 9007199254740993.10, "files":[{"name":"a"},{"name":"b"}], "html":"<&>", "nil":null}`),
		model.Assistant("", a, b, c),
		model.ToolResult(a, json.RawMessage(`{"old":1}`)),
		unnamed,
		model.ToolResult(c, json.RawMessage(`{"findings": [{"z":1, "a":2}, "x"], "none":[]}`)),
		model.User("and now the report, please"),
	}
}

func play(t *testing.T, turn string) (*model.Response, error) {
	t.Helper()
	res, _, err := ask(t, &model.Request{Model: builtin.Script, Messages: conversation(),
		Params: model.Params{Extended: json.RawMessage(`{"script":[{"say":"played before"},` + turn + `]}`)}})
	return res, err
}

func TestExpansion(t *testing.T) {
	t.Parallel()
	for turn, want := range map[string]string{
		`{"say":"plain"}`: `plain`,
		`{"say":""}`:      ``,
		`{"say":"in ${input.path}: ${tools.count} of ${tools.look.findings}"}`: `in src/main.go: 42 of [{"z":1,"a":2},"x"]`,
		`{"say":"${input.files.1.name}${input.nil}${input.html}"}`:             `bnull<&>`,
		`{"say":"$${input.path} costs $5, $$6 and $ {x}"}`:                     `${input.path} costs $5, $$6 and $ {x}`,
		`{"json":{"b":1,"a":"${input.n}","s":"n=${input.n}"}}`:                 `{"b":1,"a":9007199254740993.10,"s":"n=9007199254740993.10"}`,
		`{"json":"${input.files}"}`:                                            `[{"name":"a"},{"name":"b"}]`,
		`{"json":["${tools.look.findings...}","${tools.look.none...}",3]}`:     `[{"z":1,"a":2},"x",3]`,
		`{"json":["${tools.look.none...}"]}`:                                   `[]`,
		`{"json":"${results}"}`:                                                `[{"old":1},42,{"findings":[{"z":1,"a":2},"x"],"none":[]}]`,
		`{"json":"${results.1}"}`:                                              `42`,
		`{"json":{"${input.path}":"<${input.html}>","t":[true,null,1e400]}}`:   `{"${input.path}":"<<&>>","t":[true,null,1e400]}`,
		`{"json":null}`:                  `null`,
		`{"json":"$${tools}"}`:           `"${tools}"`,
		`{"json":"${input.path}.bak"}`:   `"src/main.go.bak"`,
		`{"json":{"q":"${input.html}"}}`: `{"q":"<&>"}`,
	} {
		res, err := play(t, turn)
		if err != nil {
			t.Errorf("%s: %v", turn, err)
			continue
		}
		if res.Message.Content != want || res.Finish != model.FinishStop {
			t.Errorf("%s\n got %s\nwant %s", turn, res.Message.Content, want)
		}
	}
}

func TestCallsExpandTheirArguments(t *testing.T) {
	t.Parallel()
	res, err := play(t, `{"say":"Reading ${input.path}","call":[
		{"name":"look","arguments":{"path":"${input.path}","all":["${tools.look.findings...}"]}},
		{"name":"count"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(struct {
		Message model.Message
		Finish  model.Finish
		Usage   model.Usage
		Model   string
	}{res.Message, res.Finish, res.Usage, res.Model})
	const want = `{"Message":{"role":"assistant","content":"Reading src/main.go","tool_calls":[` +
		`{"id":"call_2_1","name":"look","arguments":{"path":"src/main.go","all":[{"z":1,"a":2},"x"]}},` +
		`{"id":"call_2_2","name":"count","arguments":{}}]},"Finish":"tool_calls","Usage":{"input_tokens":21,"output_tokens":6},"Model":"script"}`
	if string(got) != want {
		t.Errorf("response\n got %s\nwant %s", got, want)
	}
}

func TestReferencesThatLeadNowhereNameTheTurn(t *testing.T) {
	t.Parallel()
	for turn, want := range map[string]string{
		`{"say":"${input.nope}"}`:                                  `script turn 2: say: ${input.nope}: there is no member "nope"`,
		`{"say":"${input.files.2}"}`:                               `no element "2" in a list of 2`,
		`{"say":"${input.files.name}"}`:                            `no element "name" in a list of 2`,
		`{"say":"${input.path.x}"}`:                                `"x" leads into something that is neither object nor list`,
		`{"json":{"a":["${tools.nope.x}"]}}`:                       `json: a: ${tools.nope.x}: the tool "nope" has no result yet`,
		`{"json":["${input.path...}"]}`:                            `only a list can be spread`,
		`{"call":[{"name":"x","arguments":{"p":"${results.9}"}}]}`: `call[0].arguments: p: ${results.9}: there is no element "9" in a list of 3`,
	} {
		_, err := play(t, turn)
		if !errors.Is(err, model.ErrBadRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that says %q", turn, err, want)
		}
	}
}

func TestPlainTextsHaveNoMembers(t *testing.T) {
	t.Parallel()
	const scriptOf = `{"script":[%s,%[1]s]}`
	begin := []model.Message{{Role: model.RoleUser, Content: "a plain text"}}
	failed := append(slices.Clone(begin), model.Message{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "1", Name: "look", Arguments: json.RawMessage(`{}`)}}},
		model.Message{Role: model.RoleTool, ToolCallID: "1", Content: "failed: no such file"})
	for _, tt := range []struct {
		turn     string
		messages []model.Message
		want     string // the answer, or a part of the error
	}{
		{`{"say":"<${input.text}>"}`, begin, "<a plain text>"}, // the payload was {"text": …}
		{`{"say":"${input.path}"}`, begin, `${input.path}: the task is a plain text, which has no "path"`},
		{`{"say":"${tools.look.size}"}`, failed, `the latest result of the tool "look" is a text, which has no "size"; that of a call that failed is a text, too`},
		{`{"say":"${tools.look}"}`, failed, "failed: no such file"},
	} {
		got := ""
		req := &model.Request{Messages: tt.messages}
		if res, err := (scripted{builtin.New(), json.RawMessage(fmt.Sprintf(scriptOf, tt.turn))}).Generate(t.Context(), req, nil); err != nil {
			got = err.Error()
		} else {
			got = res.Message.Content
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.turn, got, tt.want)
		}
	}
}

func TestCallsAreThoseOfTheScript(t *testing.T) {
	t.Parallel()
	got := builtin.Calls(json.RawMessage(`{"script":[{"call":[{"name":"a"},{"name":"b"}]},{"say":"x"},{"call":[{"name":"a"}]}]}`))
	if want := [][]string{{"a", "b"}, nil, {"a"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := builtin.Calls(json.RawMessage(`{"script":[{"call":[{"name":"a"}]},{"sayy":"x"}]}`)); got != nil {
		t.Errorf("of a script that is refused: %q", got)
	}
}

func TestMalformedScriptsNameTheTurn(t *testing.T) {
	t.Parallel()
	for turn, want := range map[string]string{
		`{}`:                                     `one of say, call, json or error is needed`,
		`{"sayy":"x"}`:                           `unknown field "sayy"`,
		`"hello"`:                                `a turn is an object`,
		`null`:                                   `a turn is an object`,
		`{"say":1}`:                              `say: a JSON number does not fit`,
		`{"say":"x","json":1}`:                   `json and say exclude one another`,
		`{"json":1,"call":[{"name":"x"}]}`:       `call, json and error exclude one another`,
		`{"call":[]}`:                            `call: the list is empty`,
		`{"call":[{}]}`:                          `call[0].name: must not be empty`,
		`{"call":[{"name":"x","arguments":[]}]}`: `call[0].arguments: must be an object`,
		`{"call":[{"name":"x","argument":{}}]}`:  `unknown field "argument"`,
		`{"say":"x","delay_ms":-1}`:              `delay_ms: want 0 to 600000`,
		`{"say":"x","pace_ms":1e9}`:              `pace_ms`,
		`{"say":"x","usage":{"input_tokens":-1}}`:       `usage`,
		`{"error":{"kind":"bored"}}`:                    `error.kind: "bored" is none of unavailable, rate_limited, `,
		`{"error":{"kind":"auth","retry_after_ms":-1}}`: `retry_after_ms`,
		`{"say":"${input"}`:                             `has a ${ without its }`,
		`{"say":"${}"}`:                                 `${}: want ${input…}`,
		`{"say":"${env.HOME}"}`:                         `${env.HOME}: want ${input…}`,
		`{"say":"${tools}"}`:                            `want ${input…}, ${tools.NAME…}`,
		`{"say":"${input..a}"}`:                         `${input..a}: want`,
		`{"json":{"a":"${input...}"}}`:                  `json: a: ${input...}: want`,
		`{"json":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`: `nesting exceeds the bound of 64`,
		`{"json":[` + strings.Repeat(`"${input}",`, 1024) + `"${input}"]}`:   `more than 1024 references`,
		`{"call":[` + strings.Repeat(`{"name":"x"},`, 64) + `{"name":"x"}]}`: `65 calls exceed the bound of 64`,
	} {
		extended := json.RawMessage(`{"script":[{"say":"fine"},{"say":"fine"},` + turn + `]}`)
		err := builtin.Check(extended)
		if err == nil || !strings.Contains(err.Error(), "script turn 3: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: error %v, want one of turn 3 that says %q", turn, err, want)
		}
		// A mistake anywhere fails the first turn already.
		_, _, err2 := ask(t, &model.Request{Model: builtin.Script, Messages: []model.Message{model.User("hi")}, Params: model.Params{Extended: extended}})
		if !errors.Is(err2, model.ErrBadRequest) || err != nil && !strings.Contains(err2.Error(), err.Error()) {
			t.Errorf("%.80s: Generate: %v, Check: %v", turn, err2, err)
		}
	}
	for extended, want := range map[string]string{
		``:                      `params.extended has no script`,
		`{}`:                    `has no script`,
		`{"script":[]}`:         `without turns`,
		`{"script":{"say":""}}`: `a list of turns`,
		`{"script":[` + strings.Repeat(`{"say":""},`, 256) + `{"say":""}]}`: `257 turns exceed the bound of 256`,
	} {
		if err := builtin.Check(json.RawMessage(extended)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: error %v, want one that says %q", extended, err, want)
		}
	}
}

func TestScriptEnds(t *testing.T) {
	t.Parallel()
	_, _, err := ask(t, &model.Request{Model: builtin.Script, Messages: []model.Message{model.User("hi"), model.Assistant("one"), model.User("more")},
		Params: model.Params{Extended: json.RawMessage(`{"script":[{"say":"one"}]}`)}})
	if !errors.Is(err, model.ErrBadRequest) || !strings.Contains(err.Error(), "it ends after turn 1") {
		t.Errorf("error %v", err)
	}
}

func TestExpansionIsBounded(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 1<<20)
	for _, turn := range []string{
		`{"say":"` + strings.Repeat("${input}", 5) + `"}`,
		`{"json":[` + strings.Repeat(`"${input}",`, 5) + `1]}`,
	} {
		_, _, err := ask(t, &model.Request{Model: builtin.Script, Messages: []model.Message{model.User(big)},
			Params: model.Params{Extended: json.RawMessage(`{"script":[` + turn + `]}`)}})
		if !errors.Is(err, model.ErrBadRequest) || !strings.Contains(err.Error(), "expands to more than 4194304 bytes") {
			t.Errorf("error %v", err)
		}
	}
}

func TestInsertedValuesAreNotExpandedAgain(t *testing.T) {
	t.Parallel()
	res, _, err := ask(t, &model.Request{Model: builtin.Script, Messages: []model.Message{model.User(`{"a":"${input.b}","b":"never"}`)},
		Params: model.Params{Extended: json.RawMessage(`{"script":[{"json":["${input.a}","x${input.a}"]}]}`)}})
	if err != nil || res.Message.Content != `["${input.b}","x${input.b}"]` {
		t.Errorf("response %+v, error %v", res, err)
	}
}

func TestErrorTurns(t *testing.T) {
	t.Parallel()
	_, err := play(t, `{"error":{"kind":"rate_limited","message":"slow down","retry_after_ms":1500}}`)
	if want := "model rate limited: slow down (retry after 1.5s)"; !errors.Is(err, model.ErrRateLimited) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	_, err = play(t, `{"error":{"kind":"auth"}}`)
	if want := "model refused the credential: script turn 2 says so"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		_, err := builtin.New().Generate(t.Context(), &model.Request{Model: builtin.Script, Messages: []model.Message{model.User("hi")},
			Params: model.Params{Extended: json.RawMessage(`{"script":[{"say":"a b c","delay_ms":5000,"pace_ms":100}]}`)}},
			func(model.Delta) error {
				at = append(at, time.Since(start))
				return nil
			})
		if got, want := fmt.Sprint(at), "[5s 5.1s 5.2s]"; err != nil || got != want {
			t.Errorf("words came at %s, error %v, want %s", got, err, want)
		}
	})
}

func FuzzScript(f *testing.F) {
	for _, s := range []string{
		`{"script":[{"say":"${input.path}"}]}`,
		`{"script":[{"json":{"a":["${tools.look.findings...}",1e400,"$${x}"],"b":"${results.0}"}}]}`,
		`{"script":[{"call":[{"name":"x","arguments":{"p":"${input}"}}],"say":"s","delay_ms":0}]}`,
		`{"script":[{"error":{"kind":"auth"}}]}`,
	} {
		f.Add([]byte(s), `{"path":"x","a":[1,{"b":"${input}"}]}`, `{"findings":[1,2]}`)
	}
	f.Fuzz(func(t *testing.T, extended []byte, input, result string) {
		call := model.ToolCall{ID: "a", Name: "look", Arguments: json.RawMessage(`{}`)}
		messages := []model.Message{model.User(input), {Role: model.RoleTool, ToolCallID: "a", ToolName: call.Name, Content: result}}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = builtin.Check(extended)
		for _, c := range []context.Context{ctx, t.Context()} {
			if c == t.Context() && strings.Contains(string(extended), "_") { // delays
				continue
			}
			res, err := builtin.New().Generate(c, &model.Request{Model: builtin.Script, Messages: messages, Params: model.Params{Extended: extended}}, nil)
			if (res == nil) == (err == nil) {
				t.Fatalf("response %v and error %v", res, err)
			}
			if err != nil {
				continue
			}
			for _, c := range res.Message.ToolCalls {
				if !json.Valid(c.Arguments) {
					t.Errorf("arguments %s", c.Arguments)
				}
			}
		}
	})
}

package bedrock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/bedrock"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

const (
	testID     = "AKIDEXAMPLE1234567890"
	testSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	testKey    = testID + ":" + testSecret
)

// wireRequest is the part of a Converse request that the double reads.
type wireRequest struct {
	Messages []struct {
		Role    string
		Content []wireBlock
	}
	System          []struct{ Text string }
	InferenceConfig struct {
		MaxTokens         *int
		Temperature, TopP *float64
		StopSequences     []string
	}
	ToolConfig *struct {
		Tools []struct {
			ToolSpec struct {
				Name, Description string
				InputSchema       struct{ JSON map[string]any }
			}
		}
	}
	OutputConfig *struct {
		TextFormat struct {
			Type      string
			Structure struct {
				JSONSchema struct{ Name, Schema string }
			}
		}
	}
	AdditionalModelRequestFields json.RawMessage
}

type wireBlock struct {
	Text    string
	ToolUse *struct {
		ToolUseID, Name string
		Input           map[string]any
	}
	ToolResult *struct {
		ToolUseID, Status string
		Content           []struct{ Text string }
	}
	ReasoningContent *struct {
		ReasoningText   *struct{ Text, Signature string }
		RedactedContent []byte
	}
}

var wireID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// check refuses what the real service would refuse.
func (r *wireRequest) check() error {
	if t := r.InferenceConfig.Temperature; t != nil && *t > 1 {
		return fmt.Errorf("1 validation error detected: Value at 'inferenceConfig.temperature' failed to satisfy constraint")
	}
	for _, s := range r.System {
		if strings.TrimSpace(s.Text) == "" {
			return fmt.Errorf("The text field in the system prompt is blank")
		}
	}
	if r.ToolConfig != nil {
		if len(r.ToolConfig.Tools) == 0 {
			return fmt.Errorf("toolConfig.tools has length 0")
		}
		for _, t := range r.ToolConfig.Tools {
			if t.ToolSpec.Name == "" || t.ToolSpec.InputSchema.JSON["type"] != "object" {
				return fmt.Errorf("The value at toolConfig.tools.0.toolSpec.inputSchema.json.type must be one of the following: object")
			}
		}
	}
	var open []string
	for i, m := range r.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return fmt.Errorf("messages.%d: roles must alternate and begin with the user: %q", i, m.Role)
		}
		if len(m.Content) == 0 {
			return fmt.Errorf("The content field in the Message object at messages.%d is empty", i)
		}
		results := true
		for j, b := range m.Content {
			switch {
			case b.ToolUse != nil:
				if !wireID.MatchString(b.ToolUse.ToolUseID) || b.ToolUse.Input == nil || r.ToolConfig == nil {
					return fmt.Errorf("messages.%d.content.%d: toolUse %+v", i, j, b.ToolUse)
				}
				open = append(open, b.ToolUse.ToolUseID)
			case b.ToolResult != nil:
				at := slices.Index(open, b.ToolResult.ToolUseID)
				if at < 0 || !results || len(b.ToolResult.Content) == 0 || b.ToolResult.Content[0].Text == "" {
					return fmt.Errorf("messages.%d.content.%d: toolResult %+v", i, j, b.ToolResult)
				}
				open = slices.Delete(open, at, at+1)
			case b.ReasoningContent != nil:
				if t := b.ReasoningContent.ReasoningText; t != nil && t.Signature != "signed:"+t.Text {
					return fmt.Errorf("messages.%d.content.%d: invalid signature", i, j)
				}
			case strings.TrimSpace(b.Text) == "":
				return fmt.Errorf("The text field in the ContentBlock object at messages.%d.content.%d is blank", i, j)
			default:
				results = false
			}
		}
		if m.Role == "user" && len(open) > 0 {
			return fmt.Errorf("Expected toolResult blocks at messages.%d.content for the following Ids: %v", i, open)
		}
	}
	if len(r.Messages)%2 == 0 {
		return fmt.Errorf("The model does not support assistant message prefill. The conversation must end with a user message.")
	}
	return nil
}

var route = regexp.MustCompile(`^/model/([^/]+)/(converse|converse-stream)$`)

// double is a server that speaks the protocol and plays turns.
func double(t *testing.T, turns ...modeltest.Turn) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		path := route.FindStringSubmatch(r.URL.EscapedPath())
		if r.Method != "POST" || path == nil {
			fail(w, 404, "UnknownOperationException", "no such thing")
			return
		}
		if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="+testID+"/") || !strings.Contains(r.Header.Get("Authorization"), "/eu-central-1/bedrock/aws4_request") {
			fail(w, 403, "UnrecognizedClientException", "The security token included in the request is invalid: "+r.Header.Get("Authorization"))
			return
		}
		var req wireRequest
		if err = json.Unmarshal(body, &req); err == nil {
			err = req.check()
		}
		if err != nil {
			fail(w, 400, "ValidationException", err.Error())
			return
		}
		n := 0
		for _, m := range req.Messages {
			if m.Role == "assistant" {
				n++
			}
		}
		if n >= len(turns) {
			fail(w, 400, "ValidationException", "the double has no more turns")
			return
		}
		play(w, r, path[2] == "converse-stream", turns[n])
	}))
	t.Cleanup(srv.Close)
	return srv
}

func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-ErrorType", code+":http://internal.amazon.com/coral/com.amazon.bedrock/")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"message": message})
}

func failAs(w http.ResponseWriter, e *model.Error) {
	switch e.Kind {
	case model.ErrUnavailable:
		fail(w, 503, "ServiceUnavailableException", e.Message)
	case model.ErrRateLimited:
		w.Header().Set("Retry-After", fmt.Sprint(e.RetryAfter.Seconds()))
		fail(w, 429, "ThrottlingException", e.Message)
	case model.ErrBadRequest:
		fail(w, 400, "ValidationException", e.Message)
	case model.ErrAuth:
		fail(w, 403, "AccessDeniedException", e.Message)
	case model.ErrContextTooLong:
		fail(w, 400, "ValidationException", "The model returned the following errors: Input is too long for requested model.")
	}
}

// events writes the frames of an event stream.
type events struct {
	w   http.ResponseWriter
	enc *eventstream.Encoder
}

func newEvents(w http.ResponseWriter) *events {
	w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	return &events{w, eventstream.NewEncoder()}
}

func (e *events) send(typ string, members map[string]any) {
	e.frame("event", ":event-type", typ, members)
}

func (e *events) frame(kind, name, typ string, members any) {
	payload, _ := json.Marshal(members)
	e.enc.Encode(e.w, eventstream.Message{
		Headers: eventstream.Headers{
			{Name: ":message-type", Value: eventstream.StringValue(kind)},
			{Name: name, Value: eventstream.StringValue(typ)},
			{Name: ":content-type", Value: eventstream.StringValue("application/json")},
		},
		Payload: payload,
	})
	e.w.(http.Flusher).Flush()
}

func usage(u model.Usage) map[string]any {
	return map[string]any{"inputTokens": u.InputTokens, "outputTokens": u.OutputTokens, "totalTokens": u.InputTokens + u.OutputTokens}
}

func play(w http.ResponseWriter, r *http.Request, stream bool, turn modeltest.Turn) {
	if turn.Fail != nil && (turn.Text == "" || !stream) {
		failAs(w, turn.Fail)
		return
	}
	if turn.Hang && !stream {
		<-r.Context().Done()
		return
	}
	stop := "end_turn"
	if len(turn.Calls) > 0 {
		stop = "tool_use"
	}
	if !stream {
		var blocks []any
		if turn.Text != "" {
			blocks = append(blocks, map[string]any{"text": turn.Text})
		}
		for _, c := range turn.Calls {
			blocks = append(blocks, map[string]any{"toolUse": map[string]any{"toolUseId": "tooluse_" + c.ID, "name": c.Name, "input": c.Arguments}})
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{
			"output": map[string]any{"message": map[string]any{"role": "assistant", "content": blocks}}, "stopReason": stop,
			"usage": usage(turn.Usage), "metrics": map[string]any{"latencyMs": 1},
		})
		return
	}
	e := newEvents(w)
	e.send("messageStart", map[string]any{"role": "assistant"})
	index := 0
	delta := func(d map[string]any) {
		e.send("contentBlockDelta", map[string]any{"contentBlockIndex": index, "delta": d})
	}
	for _, word := range modeltest.Words(turn.Text) {
		delta(map[string]any{"text": word})
	}
	if turn.Fail != nil {
		io.WriteString(w, "\x00\x00\x00\x90\x00\x00") // half of a prelude, and then nothing
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	if turn.Hang {
		<-r.Context().Done()
		return
	}
	if turn.Text != "" {
		e.send("contentBlockStop", map[string]any{"contentBlockIndex": index})
		index++
	}
	// Arguments come in pieces that are cut at any byte.
	const pieces = 5
	for _, c := range turn.Calls {
		e.send("contentBlockStart", map[string]any{"contentBlockIndex": index, "start": map[string]any{"toolUse": map[string]any{"toolUseId": "tooluse_" + c.ID, "name": c.Name}}})
		args := []rune(string(c.Arguments))
		for p := range pieces {
			delta(map[string]any{"toolUse": map[string]any{"input": string(args[len(args)*p/pieces : len(args)*(p+1)/pieces])}})
		}
		e.send("contentBlockStop", map[string]any{"contentBlockIndex": index})
		index++
	}
	e.send("messageStop", map[string]any{"stopReason": stop})
	e.send("metadata", map[string]any{"usage": usage(turn.Usage), "metrics": map[string]any{"latencyMs": 1}})
}

func newModel(t testing.TB, base string, mend ...func(*bedrock.Config)) *bedrock.Model {
	t.Helper()
	cfg := bedrock.Config{Region: "eu-central-1", BaseURL: base, Key: func(context.Context) (string, error) { return testKey + "\n", nil }}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	cfg.HTTPClient = &http.Client{Transport: transport}
	for _, f := range mend {
		f(&cfg)
	}
	m, err := bedrock.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func hasKey(s string) bool {
	return strings.Contains(s, testSecret) || strings.Contains(s, url.QueryEscape(testSecret)) || strings.Contains(s, testID)
}

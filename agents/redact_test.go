package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// A credential that a tool sends back is removed: from a result in any
// spelling, from an error's text, and from its cause.
func TestToolsDoNotHandOnCredentials(t *testing.T) {
	t.Parallel()
	r := &secret.Redactor{}
	r.Add(secret.New("s3cr3t-vé"), secret.New("12345678"), secret.New("pw/with+slash"))
	for sent, want := range map[string]string{
		`{"headers":{"Authorization":"Bearer s3cr3t-vé"}}`:        `{"headers":{"Authorization":"Bearer [redacted]"}}`,
		`{"headers":{"Authorization":"Bearer s3cr3t-v\u00e9"}}`:   `{"headers":{"Authorization":"Bearer [redacted]"}}`,
		`{"\u0073\u0033cr3t-v\u00e9":[1.50,"s3cr3t-v\u00e9",{}]}`: `{"[redacted]":[1.50,"[redacted]",{}]}`,
		`{"key":"pw\/with+slash","n":1.0}`:                        `{"key":"[redacted]","n":1.0}`, // as PHP writes it
		`{"pin":"12345678"}`:                                      `{"pin":"[redacted]"}`,
		`12345678`:                                                `"[redacted]"`,
		`{"n":1.0,"pin":12345678}`:                                `{"n":1.0,"pin":"[redacted]"}`,
		`{"pin":12345678,"say":"\u00e9, 12345678"}`:               `{"pin":"[redacted]","say":"é, [redacted]"}`,
		`{"n":1.0,"u":"\u00e9"}`:                                  `{"n":1.0,"u":"\u00e9"}`,
	} {
		def := tool.Definition{Name: "echo", Description: "Echoes."}
		echo := redact(tool.RepeatSafe(tool.Func(def, func(context.Context, struct{}) (json.RawMessage, error) { return json.RawMessage(sent), nil })), r)
		got, err := echo.Call(t.Context(), json.RawMessage(`{}`))
		if err != nil || string(got) != want || !json.Valid(got) {
			t.Errorf("%s becomes %s, %v; want %s", sent, got, err, want)
		}
		if !tool.IsRepeatSafe(echo) {
			t.Error("it does not say any more that it is safe to repeat")
		}
	}
	cause := errors.New("401: Bearer s3cr3t-vé")
	_, err := redact(failingTool{&tool.Error{Kind: tool.ErrFailed, Tool: "echo", Message: "it says: s3cr3t-vé", Err: cause}}, r).Call(t.Context(), nil)
	var failed *tool.Error
	if !errors.As(err, &failed) || !errors.Is(err, tool.ErrFailed) || !errors.Is(err, cause) {
		t.Fatalf("err = %v", err)
	}
	if all := failed.Error() + failed.Message + failed.Err.Error(); strings.Contains(all, "s3cr3t") {
		t.Errorf("the error says %s", all)
	}
}

// described is a tool of a server that repeats a credential in all that it says of the tool.
type described struct{ failingTool }

func (described) Definition() tool.Definition {
	return tool.Definition{
		Name: "look", Description: "Looks, with s3cr3t-value.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"as":{"description":"s3cr3t-value","default":"s3cr3t\u002dvalue","enum":["s3cr3t-value","me"]}}}`),
	}
}

// A server's description of a tool may repeat a credential, in its schemas as well: neither they
// nor the errors that quote them have it when the model sees them.
func TestWhatAServerSaysOfAToolHoldsNoCredentials(t *testing.T) {
	t.Parallel()
	r := &secret.Redactor{}
	r.Add(secret.New("s3cr3t-value"))
	set := &toolset{entries: []*toolEntry{{Tool: &aaif.Tool{Name: "look", Protocol: aaif.ProtocolMCP}, source: tool.Static(described{}), secrets: r, schemas: new(schema.Pool)}}, log: slog.New(slog.DiscardHandler)}
	offered, err := set.offer(t.Context())
	if err != nil || len(offered.defs) != 1 {
		t.Fatalf("offered %+v, %v", offered, err)
	}
	d := offered.defs[0]
	_, err = offered.tools["look"].Call(t.Context(), json.RawMessage(`{"as":"you"}`))
	if err == nil {
		t.Fatal("a value is taken that is not listed")
	}
	if all := d.Description + string(d.Parameters) + err.Error(); d.Name != "look" || strings.Contains(all, "s3cr3t") || strings.Count(all, secret.Redacted) != 5 {
		t.Errorf("the model sees %s", all)
	}
}

type failingTool struct{ err error }

func (t failingTool) Definition() tool.Definition { return tool.Definition{Name: "echo"} }
func (t failingTool) Call(context.Context, json.RawMessage) (json.RawMessage, error) {
	return nil, t.err
}

func TestLogsOfAnAgentHoldNoCredentials(t *testing.T) {
	t.Parallel()
	r := &secret.Redactor{}
	r.Add(secret.New("s3cr3t-value"))
	var out bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		log := slog.New(secret.LogHandler(h, r)).With("with", "a s3cr3t-value").WithGroup("g")
		log.Info("message s3cr3t-value", "text", "s3cr3t-value", "err", errors.New("cause s3cr3t-value"), "n", 17,
			slog.Group("in", "deep", "s3cr3t-value"), "bytes", []byte("s3cr3t-value"), "any", map[string]string{"k": "s3cr3t-value"})
	}
	if text := out.String(); strings.Contains(text, "s3cr3t") || strings.Contains(text, "czNjcjN0") || !strings.Contains(text, "17") {
		t.Errorf("logged: %s", text)
	}
}

// attributed is a span that keeps its attributes.
type attributed struct {
	noop.Span
	text string
}

func (s *attributed) SetAttributes(all ...attribute.KeyValue) {
	for _, a := range all {
		s.text += string(a.Key) + "=" + a.Value.AsString() + "\n"
	}
}

// oneSpan is a tracer with one span.
type oneSpan struct {
	noop.Tracer
	span trace.Span
}

func (t oneSpan) Start(ctx context.Context, _ string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	return ctx, t.span
}

// A text is cut where it is too long for a span, perhaps in the middle of a credential.
func TestSpansHoldNoPartOfACredential(t *testing.T) {
	t.Parallel()
	secrets := &secret.Redactor{}
	secrets.Add(secret.New("s3cr3t-w0rd-that-is-long"))
	span := &attributed{}
	r := &reporter{tracer: oneSpan{span: span}, content: true, secrets: secrets}
	long := strings.Repeat("x", MaxContent-20) + " s3cr3t-w0rd-that-is-long"
	quoted, err := json.Marshal(map[string]string{"text": long})
	if err != nil {
		t.Fatal(err)
	}
	call := model.ToolCall{ID: "1", Name: "f", Arguments: quoted}
	r.conversation(span, &model.Request{Messages: []model.Message{model.System(long), model.User(long), model.Assistant("", call), model.ToolResult(call, quoted)}}, &model.Response{Message: model.Assistant(long, call)})
	r.exchange(span, quoted, quoted)
	ctx := context.WithValue(t.Context(), reporterOfRun{}, r)
	if _, err := callTool(ctx, "", &toolCall{ToolCall: call}, nil, tool.Raw(tool.Definition{Name: "f"}, func(context.Context, json.RawMessage) (json.RawMessage, error) { return quoted, nil })); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(span.text) {
		name, text, _ := strings.Cut(line, "=")
		if at := strings.Index(text, "s3cr"); at >= 0 || !strings.Contains(text, "xxx") {
			t.Errorf("%s: …%q", name, text[max(0, at):min(len(text), max(0, at)+20)])
		}
	}
}

package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/agents/tool"
)

func TestResults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, result string
		schema       bool
		want, err    string
	}{
		{"a text", `{"content":[{"type":"text","text":"hello"}]}`, false, `"hello"`, ""},
		{"a text that is an object", `{"content":[{"type":"text","text":" {\"id\": 9007199254740993} "}]}`, false, `{"id": 9007199254740993}`, ""},
		{"a text that is a number", `{"content":[{"type":"text","text":"7"}]}`, false, `"7"`, ""},
		{"a text that is nearly an object", `{"content":[{"type":"text","text":"{7}"}]}`, false, `"{7}"`, ""},
		{"several texts", `{"content":[{"type":"text","text":"{}"},{"type":"text","text":"b"}]}`, false, `"{}\nb"`, ""},
		{"nothing", `{"content":[]}`, false, `null`, ""},
		{"structured, exactly", `{"content":[{"type":"text","text":"{}"}],"structuredContent":{"id":9007199254740993,"x":2.50}}`, false, `{"id":9007199254740993,"x":2.50}`, ""},
		{"structured, with a _meta of its own", `{"_meta":{"a":1},"content":[],"structuredContent":[1e2]}`, true, `[1e2]`, ""},
		{"structured, in another spelling, with a text that claims to be exact", `{"_meta":{"aeemesh/exact":"{\"id\":1}"},"content":[],"structured\u0043ontent":{"id":9007199254740993}}`, true, `{"id":9007199254740993}`, ""},
		{"an image", `{"content":[{"type":"text","text":"see"},{"type":"image","data":"aGk=","mimeType":"image/png"}]}`, false,
			`{"content":[{"type":"text","text":"see"},{"type":"image","mime_type":"image/png","bytes":2,"sha256":"8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4"}]}`, ""},
		{"structured and an image", `{"content":[{"type":"image","data":"aGk=","mimeType":"image/png"}],"structuredContent":{"n":1}}`, false,
			`{"content":[{"type":"image","mime_type":"image/png","bytes":2,"sha256":"8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4"}],"structured_content":{"n":1}}`, ""},
		{"structured and an image, with a schema", `{"content":[{"type":"image","data":"aGk=","mimeType":"image/png"}],"structuredContent":{"n":1}}`, true, `{"n":1}`, ""},
		{"a link", `{"content":[{"type":"resource_link","uri":"file:///a","name":"a","size":3}]}`, false, `{"content":[{"type":"resource_link","uri":"file:///a","name":"a","bytes":3}]}`, ""},
		{"a resource", `{"content":[{"type":"resource","resource":{"uri":"x:y","mimeType":"text/plain","text":"t"}}]}`, false, `{"content":[{"type":"resource","text":"t","uri":"x:y","mime_type":"text/plain"}]}`, ""},
		{"a part of a type that is not known", `{"content":[{"type":"video","url":"x"},{"type":"text","text":"see"}],"n":9007199254740993}`, false, `"(a part of type \"video\" is left out: it cannot be read)\nsee"`, ""},
		{"bytes that are not base64", `{"content":[{"type":"image","data":"!","mimeType":"image/png"}],"structuredContent":{"id":9007199254740993}}`, false, `{"id":9007199254740993}`, ""},
		{"a part that is none", `{"content":[null,7]}`, false, `"(a part of type \"\" is left out: it cannot be read)\n(a part of type \"\" is left out: it cannot be read)"`, ""},
		{"an error", `{"isError":true,"content":[{"type":"text","text":"the disk is full"}]}`, false, "", "tool : failed: the disk is full"},
		{"an error without words", `{"isError":true,"content":[]}`, false, "", "tool : failed: the tool says that it failed, and not why"},
		{"an error in structured content", `{"isError":true,"content":[],"structuredContent":{"code":9007199254740993}}`, false, "", `tool : failed: {"code":9007199254740993}`},
		{"an error in a resource", `{"isError":true,"content":[{"type":"resource","resource":{"uri":"x:y","text":"the disk is full"}}]}`, false, "", `tool : failed: [{"type":"resource","text":"the disk is full","uri":"x:y"}]`},
		{"too much to do", `{"resultType":"input_required","content":[]}`, false, "", "tool : unavailable: the MCP server has too much to do; try again later"},
		{"a question", `{"resultType":"input_required","content":[],"inputRequests":{"q":{"method":"roots/list","params":{}}}}`, false, "", "tool : failed: the tool asks for input from a person, and no person can be asked here"},
	} {
		got, err := mapped(t, tt.result, tt.schema)
		if string(got) != tt.want || fmt.Sprint(err) != tt.err && (err != nil || tt.err != "") {
			t.Errorf("%s: %s, error %v, want %s %s", tt.name, got, err, tt.want, tt.err)
		}
	}
}

// The schemas of a server's tools keep their numbers, too: the model gets the ids that the server
// accepts, and arguments are validated against them.
func TestSchemasKeepTheirNumbers(t *testing.T) {
	t.Parallel()
	const in, out = `{"type":"object","properties":{"id":{"enum":[9007199254740993,1.50]}}}`, `{"type":"object","properties":{"id":{"const":-9007199254740993}}}`
	for _, said := range []string{
		`"inputSchema":` + in + `,"outputSchema":` + out,
		`"inputSchema":` + in + `,"outputSchema":` + out + `,"_meta":{"a":1}`,
		`"input\u0053chema":` + in + `,"outputSchema":` + out + `,"_meta":{"aeemesh/exact/inputSchema":"{}","aeemesh/exact/outputSchema":7}`,
	} {
		message := received([]byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[null,{"name":"small","inputSchema":{"type":"object"}},{"name":"large",` + said + `}]}}`))
		var wire struct{ Result sdk.ListToolsResult }
		if err := json.Unmarshal(message, &wire); err != nil {
			t.Fatal(err)
		}
		reading := newListing(&Config{Redactor: tool.NoRedactor{}}, slog.New(slog.DiscardHandler))
		reading.add(wire.Result.Tools)
		found := reading.catalogue().find("large")
		if found == nil || string(found.input) != in || string(found.output) != out {
			t.Errorf("%s becomes %+v", said, found)
		}
	}
}

// mapped converts a result as a call does.
func mapped(t testing.TB, result string, schema bool) (json.RawMessage, error) {
	t.Helper()
	message := received([]byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`))
	var wire struct{ Result sdk.CallToolResult }
	if err := json.Unmarshal(message, &wire); err != nil {
		return nil, fmt.Errorf("not decoded: %w", err)
	}
	cfg := Config{}.withDefaults()
	return cfg.resultOf(&wire.Result, schema)
}

// Whatever a server answers becomes JSON, or an error, and never both.
func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"text","text":"{\"a\":1}"}]}`), false)
	f.Add([]byte(`{"content":[{"type":"image","data":"aGk="}],"structuredContent":{"n":1e400},"_meta":{"aeemesh/exact":"{"}}`), true)
	f.Add([]byte(`{"structuredContent":null,"isError":true}`), false)
	f.Add([]byte(`{"_meta":[],"structured\u0043ontent":7,"content":[{"type":"resource"}]}`), false)
	f.Fuzz(func(t *testing.T, result []byte, schema bool) {
		if !json.Valid(result) {
			return
		}
		got, err := mapped(t, string(result), schema)
		if (err == nil) != json.Valid(got) {
			t.Errorf("%s and error %v", got, err)
		}
	})
}

// Untrusted frames and event streams give messages or errors.
func FuzzWire(f *testing.F) {
	f.Add([]byte("event: message\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\ndata: \"result\":{\"structuredContent\":9007199254740993}}\n\n"))
	f.Add([]byte("data:\nretry: 500\n\n: comment\n\n"))
	f.Add([]byte(`[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","method":"x"}]`))
	f.Add([]byte("{\"jsonrpc\":\"2.0\"\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if messages, err := decode(data); (err == nil) != (len(messages) > 0) && !bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
			t.Errorf("%d messages and error %v", len(messages), err)
		}
		out, err := io.ReadAll(&events{lines: bufio.NewReader(bytes.NewReader(data)), max: 1 << 10})
		if err != nil && !errors.Is(err, errTooLarge) || len(out) > 64<<10+len(data)*8 {
			t.Errorf("%d bytes of %d, error %v", len(out), len(data), err)
		}
	})
}

func TestEventsKeepExactNumbers(t *testing.T) {
	t.Parallel()
	in := "event: message\nid: 7\nretry: 500\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\r\ndata: \"result\":{\"structuredContent\":{\"id\":9007199254740993}}}\n\nid: 8\ndata:\n\n: comment\n\ndata: cut off"
	out, err := io.ReadAll(&events{lines: bufio.NewReader(strings.NewReader(in)), max: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	want := "event: message\nid: 7\nretry: 500\ndata: {\"id\":1,\"jsonrpc\":\"2.0\",\"result\":{\"_meta\":{\"aeemesh/exact\":\"{\\\"id\\\":9007199254740993}\"},\"structuredContent\":{\"id\":9007199254740993}}}\n\nid: 8\ndata: \n\n: comment\n\n"
	if string(out) != want && string(out) != strings.Replace(want, "data: \n", "data:\n", 1) {
		t.Errorf("%s\nwant\n%s", out, want)
	}
	if _, err := io.ReadAll(&events{lines: bufio.NewReader(strings.NewReader(strings.Repeat("data: x\n", 500))), max: 1 << 10}); !errors.Is(err, errTooLarge) {
		t.Errorf("an endless event: %v", err)
	}
}

// A server says when a stream that ended is asked for again, within bounds.
func TestAServerSetsThePauseWithinBounds(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"retry: 1": "retry: 500", "retry:0": "retry: 500", "retry: 500": "retry: 500", "retry: 3000\r": "retry: 3000", "retry: 3600000": "retry: 60000",
		"retry: 99999999999999999999999": "retry: 60000", "retry: soon": "", "retry: -1": "", "retry: 1e9": "", "retry:": "", "retrying: 1": "retrying: 1",
	} {
		out, err := io.ReadAll(&events{lines: bufio.NewReader(strings.NewReader("id: 7\n" + said + "\ndata: {}\n\n")), max: 1 << 10})
		if want != "" {
			want += "\n"
		}
		if want = "id: 7\n" + want + "data: {}\n\n"; err != nil || string(out) != want {
			t.Errorf("%q becomes %q, error %v, want %q", said, out, err, want)
		}
	}
}

func TestLegalNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70)
	names := []string{"files.read", "files_read", "search", "7zip", "-x", "ä", long, long + "y", "a/b", "a.b", "fine-1"}
	got := legalNames(names)
	if want := "search 7zip:_7zip -x:_-x ä:_ fine-1"; want != strings.Join([]string{got["search"], "7zip:" + got["7zip"], "-x:" + got["-x"], "ä:" + got["ä"], got["fine-1"]}, " ") {
		t.Errorf("%v", got)
	}
	if got["files_read"] != "files_read" || !strings.HasPrefix(got["files.read"], "files_read_") {
		t.Errorf("of two alike the legal one stays: %v", got)
	}
	seen := map[string]string{}
	for name, legal := range got {
		if err := (tool.Definition{Name: legal}).Validate(); err != nil {
			t.Error(err)
		}
		if other, taken := seen[legal]; taken {
			t.Errorf("%s and %s are both %s", name, other, legal)
		}
		seen[legal] = name
	}
	slices.Reverse(names)
	for name, legal := range legalNames(names) {
		if got[name] != legal {
			t.Errorf("%s is %s, and in another order %s", name, got[name], legal)
		}
	}
}

// A server's list is bounded, and one invalid tool does not affect the others.
func TestListsOfStrangers(t *testing.T) {
	t.Parallel()
	read := func(page ...*sdk.Tool) *catalogue {
		cfg := Config{}.withDefaults()
		l := newListing(&cfg, slog.New(slog.DiscardHandler))
		l.add(page)
		return l.catalogue()
	}
	object := map[string]any{"type": "object"}
	got := read([]*sdk.Tool{nil, {Name: ""}, {Name: "a\xff"}, {Name: strings.Repeat("x", 300)}, {Name: "array", InputSchema: []any{}},
		{Name: "out", InputSchema: object, OutputSchema: true}, {Name: "good", Title: "Good", InputSchema: object}, {Name: "good", InputSchema: object},
		{Name: "long", Description: strings.Repeat("ä", maxDescription), InputSchema: object}, {Name: "none"}}...)
	var names []string
	for _, r := range got.tools {
		names = append(names, r.name)
		if len(r.description) > maxDescription+3 || r.description == "" {
			t.Errorf("%s: a description of %d bytes", r.name, len(r.description))
		}
	}
	if want := []string{"good", "long", "none"}; !slices.Equal(names, want) {
		t.Errorf("tools %v, want %v", names, want)
	}
	var large []*sdk.Tool
	for i := range maxListed {
		large = append(large, &sdk.Tool{Name: fmt.Sprint("t", i), InputSchema: map[string]any{"type": "object", "title": strings.Repeat("x", 64<<10)}})
	}
	if got := len(read(large...).tools); got == 0 || got*64<<10 > maxCatalogue {
		t.Errorf("%d tools of 64 KiB are kept, within a bound of %d bytes", got, maxCatalogue)
	}
}

package openapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/tooltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seen is a request as a server saw it.
type seen struct {
	Method, URI, Type, Body string
	Header                  http.Header
}

// api serves a description at /openapi.json and remembers the other requests.
type api struct {
	url    string
	access outbound.Access
	answer http.HandlerFunc

	mu   sync.Mutex
	last seen
}

func newAPI(t testing.TB, description string) *api {
	t.Helper()
	a := &api{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi.json" {
			_, _ = io.WriteString(w, description)
			return
		}
		body, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		a.last = seen{r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"), string(body), r.Header.Clone()}
		a.mu.Unlock()
		if a.answer != nil {
			a.answer(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	}))
	t.Cleanup(server.Close)
	a.url = server.URL
	p, err := outbound.New(outbound.Config{Allow: []string{server.URL}, Files: []string{t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	a.access = outbound.Access{Policy: p}
	return a
}

func (a *api) seen() seen {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

func (a *api) tools(t testing.TB, entry aaif.Tool, o Options) (map[string]*Operation, error) {
	t.Helper()
	if entry.Endpoint == "" {
		entry.Endpoint = a.url + "/openapi.json"
	}
	entry.Name, entry.Description = cmp.Or(entry.Name, "api"), cmp.Or(entry.Description, "An API.")
	src, err := Open(&entry, a.access, o)
	if err != nil {
		return nil, err
	}
	list, err := src.Tools(t.Context())
	tools := make(map[string]*Operation)
	for _, tl := range list {
		tools[tl.Definition().Name] = tl.(*Operation)
	}
	return tools, err
}

// bodied adapts an operation with a body to the suite.
type bodied struct{ *Operation }

func (b bodied) Definition() tool.Definition { return tooltest.Definition() }

func (b bodied) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	return b.Operation.Call(ctx, append(append(json.RawMessage(`{"body":`), args...), '}'))
}

func TestConforms(t *testing.T) {
	t.Parallel()
	tooltest.Run(t, func(t *testing.T, b tooltest.Behaviour) tool.Tool {
		hold := make(chan struct{})
		a := newAPI(t, `{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{"/x":{"post":{"operationId":"subject",
			"requestBody":{"required":true,"content":{"application/json":{"schema":{"type":"object"}}}},"responses":{"200":{"description":"ok"}}}}}}`)
		a.answer = func(w http.ResponseWriter, _ *http.Request) {
			switch b {
			case tooltest.Fail:
				http.Error(w, tooltest.FailText, http.StatusInsufficientStorage)
			case tooltest.Hang:
				<-hold
			default:
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, a.seen().Body)
			}
		}
		if b == tooltest.Echo { // for concurrent calls: each gets its own
			a.answer = nil
			mux := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(body)
			}))
			t.Cleanup(mux.Close)
			p, err := outbound.New(outbound.Config{Allow: []string{a.url, mux.URL}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			a.access.Policy = p
			tools, err := a.tools(t, aaif.Tool{Name: "subject"}, Options{Server: mux.URL})
			if err != nil {
				t.Fatal(err)
			}
			return bodied{tools["subject"]}
		}
		t.Cleanup(func() { close(hold) })
		tools, err := a.tools(t, aaif.Tool{Name: "subject"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return bodied{tools["subject"]}
	})
}

// petstore is a description with a little of everything.
const petstore = `
openapi: 3.0.3
info: {title: Pets, version: "1"}
servers: [{url: "/{version}", variables: {version: {default: v1}}}]
paths:
  /pets:
    parameters: [{name: X-Tenant, in: header, schema: {type: string}}]
    get:
      operationId: listPets
      summary: Lists pets.
      parameters:
        - {name: limit, in: query, schema: {type: integer, maximum: 10, exclusiveMaximum: true}}
        - {name: "filter[kind]", in: query, schema: {type: string, nullable: true, enum: [cat, dog]}}
        - {name: Authorization, in: header, schema: {type: string}}
        - {name: session, in: cookie, schema: {type: string}}
      responses:
        "200":
          description: ok
          content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Pet"}}}}
    post:
      operationId: create pet!
      requestBody:
        required: true
        content: {application/json: {schema: {$ref: "#/components/schemas/Pet"}}}
      responses: {"201": {description: made}}
  /pets/{id}:
    get:
      parameters: [{name: id, in: path, required: true, schema: {type: string}}, {name: id, in: query, schema: {type: integer}}]
      responses: {"200": {description: ok}}
    delete:
      operationId: deletePet
      deprecated: true
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      responses: {"204": {description: gone}}
  /login:
    post:
      operationId: login
      requestBody: {content: {application/x-www-form-urlencoded: {schema: {type: object}}}}
      responses: {"200": {description: ok}}
  /photo:
    post:
      operationId: upload
      requestBody: {required: true, content: {multipart/form-data: {schema: {type: object}}}}
      responses: {"200": {description: ok}}
components:
  schemas:
    Pet:
      type: object
      required: [id, name]
      properties:
        id: {type: integer, readOnly: true}
        name: {type: string, pattern: "^(?!x)"}
        secret: {type: string, writeOnly: true}
        owner: {nullable: true, allOf: [{type: object, properties: {name: {type: string}}}]}
        friends: {type: array, items: {$ref: "#/components/schemas/Pet"}}
`

func TestOperationsBecomeTools(t *testing.T) {
	t.Parallel()
	a := newAPI(t, petstore)
	tools, err := a.tools(t, aaif.Tool{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"listPets": `{"additionalProperties":false,"properties":{"X-Tenant":{"type":"string"},"filter_kind":{"enum":["cat","dog",null],"type":["string","null"]},` +
			`"limit":{"exclusiveMaximum":10,"type":"integer"},"session":{"type":"string"}},"type":"object"}`,
		"create_pet": `{"$defs":{"Pet":{"properties":{"friends":{"items":{"$ref":"#/$defs/Pet"},"type":"array"},"name":{"type":"string"},` +
			`"owner":{"anyOf":[{"allOf":[{"properties":{"name":{"type":"string"}},"type":"object"}]},{"type":"null"}]},"secret":{"type":"string"}},` +
			`"required":["name"],"type":"object"}},"additionalProperties":false,"properties":{"X-Tenant":{"type":"string"},"body":{"$ref":"#/$defs/Pet"}},"required":["body"],"type":"object"}`,
		"get_pets_id": `{"additionalProperties":false,"properties":{"id":{"type":"string"},"id_query":{"type":"integer"}},"required":["id"],"type":"object"}`,
		"deletePet":   `{"additionalProperties":false,"properties":{"id":{"type":"string"}},"required":["id"],"type":"object"}`,
		"login":       `{"additionalProperties":false,"properties":{"body":{"type":"object"}},"type":"object"}`,
	} {
		tl := tools[name]
		if tl == nil {
			t.Errorf("there is no %s", name)
			continue
		}
		if got := string(tl.Definition().Parameters); got != want {
			t.Errorf("%s:\n%s, want\n%s", name, got, want)
		}
		if _, err := tool.Guard(tl, tool.Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(tools) != 5 { // upload is left out
		t.Errorf("%d tools", len(tools))
	}
	if d := tools["deletePet"].Definition().Description; d != "DELETE /pets/{id} (deprecated)" {
		t.Error(d)
	}
	if tools["create_pet"].RepeatSafe() || !tools["deletePet"].RepeatSafe() {
		t.Error("what is safe to repeat")
	}
	if got := tools["listPets"].Definition().Output; got != nil { // owner has alternatives: not plain
		t.Errorf("output %s, want none", got)
	}
	ctx := tool.WithTrace(tool.WithKey(t.Context(), "key-1"), "traceparent", "00-a-b-01")
	for _, tt := range []struct {
		tool, args, method, uri, kind, body string
		header                              map[string]string
	}{
		{"listPets", `{"limit":3,"filter_kind":"cat","X-Tenant":"acme","session":"a b"}`, "GET", "/v1/pets?limit=3&filter%5Bkind%5D=cat", "", "",
			map[string]string{"X-Tenant": "acme", "Cookie": "session=a+b", "Idempotency-Key": "key-1", "Traceparent": "00-a-b-01"}},
		{"listPets", `{"filter_kind":null}`, "GET", "/v1/pets", "", "", nil},
		{"create_pet", `{"body":{"name":"Rex","x":9007199254740993}}`, "POST", "/v1/pets", "application/json", `{"name":"Rex","x":9007199254740993}`, nil},
		{"get_pets_id", `{"id":"a/b","id_query":7}`, "GET", "/v1/pets/a%2Fb?id=7", "", "", nil},
		{"login", `{"body":{"user":"a&b","n":[1,2],"o":{"k":1},"z":null}}`, "POST", "/v1/login", "application/x-www-form-urlencoded", "n=1&n=2&o=%7B%22k%22%3A1%7D&user=a%26b", nil},
		{"login", `{}`, "POST", "/v1/login", "", "", nil},
	} {
		if _, err := tools[tt.tool].Call(ctx, json.RawMessage(tt.args)); err != nil {
			t.Errorf("%s: %v", tt.tool, err)
		}
		got := a.seen()
		if got.Method != tt.method || got.URI != tt.uri || got.Type != tt.kind || got.Body != tt.body {
			t.Errorf("%s with %s: %+v", tt.tool, tt.args, got)
		}
		for name, want := range tt.header {
			if got.Header.Get(name) != want {
				t.Errorf("%s: %s %q, want %q", tt.tool, name, got.Header.Get(name), want)
			}
		}
	}
	for _, args := range []string{`{}`, `{"id":null}`, `{"id":".."}`, `{"id":"../x"}`, `{"id":""}`, `{"id":"%2e%2e"}`, `{"id":[]}`, `[]`, `nonsense`} {
		if _, err := tools["deletePet"].Call(ctx, json.RawMessage(args)); !errors.Is(err, tool.ErrInvalidArguments) {
			t.Errorf("deletePet with %s: %v", args, err)
		}
	}
	if _, err := tools["listPets"].Call(ctx, json.RawMessage(`{"X-Tenant":"a\r\nb: c"}`)); !errors.Is(err, tool.ErrInvalidArguments) {
		t.Errorf("a header of two lines: %v", err)
	}
}

// A path of the description that has to be escaped keeps the escapes of arguments.
func TestAnArgumentStaysInItsSegment(t *testing.T) {
	t.Parallel()
	a := newAPI(t, `{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{"/cafés|bars/{id}":{"get":{"operationId":"op",
		"parameters":[{"name":"id","in":"path","required":true,"schema":{"type":"string"}}],"responses":{"200":{"description":"ok"}}}}}}`)
	tools, err := a.tools(t, aaif.Tool{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tools["api"].Call(t.Context(), json.RawMessage(`{"id":"a/b?c"}`)); err != nil {
		t.Fatal(err)
	}
	if got, want := a.seen().URI, "/caf%C3%A9s%7Cbars/a%2Fb%3Fc"; got != want {
		t.Errorf("the server was asked for %s, want %s", got, want)
	}
}

func TestOperationsAreSelected(t *testing.T) {
	t.Parallel()
	a := newAPI(t, petstore)
	for _, tt := range []struct{ name, fragment, want string }{
		{"api", "#listPets", "api"},
		{"api", "#listPets,deletePet", "listPets deletePet"},
		{"api", "#GET%20/pets/%7Bid%7D, login", "get_pets_id login"},
		{"api", "#get /pets/{id}", "api"},
		{"listPets", "", "listPets"},
		{"listPets", "#deletePet", "listPets"},
		{"api", "#nobody", "!no operation \"nobody\"; there are login, listPets"},
		{"api", "#upload", "!none of its operations can be offered"},
	} {
		src, err := Open(&aaif.Tool{Name: tt.name, Description: "d", Endpoint: a.url + "/openapi.json" + tt.fragment}, a.access, Options{})
		if err != nil {
			t.Fatal(err)
		}
		list, err := src.Tools(t.Context())
		if want, fails := strings.CutPrefix(tt.want, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", tt.fragment, err, want)
			}
			continue
		}
		var names []string
		for _, tl := range list {
			names = append(names, tl.Definition().Name)
		}
		if err != nil || strings.Join(names, " ") != tt.want {
			t.Errorf("%s %s: %v, %v; want %s", tt.name, tt.fragment, names, err, tt.want)
		}
	}
	// The entry has the name and description of its only tool.
	tools, err := a.tools(t, aaif.Tool{Name: "pets", Description: "My words.", Endpoint: a.url + "/openapi.json#listPets", OutputSchema: json.RawMessage(`{"type":"array"}`)}, Options{})
	if d := tools["pets"].Definition(); err != nil || d.Description != "My words." || string(d.Output) != `{"type":"array"}` {
		t.Errorf("%+v, %v", d, err)
	}
}

// The examples of styles in the specification (OpenAPI 3.1, Style Examples).
func TestStyles(t *testing.T) {
	t.Parallel()
	const object = `{"R":100,"G":200,"B":150}`
	for _, tt := range []struct {
		in, style string
		explode   bool
		value     string
		want      string
	}{
		{"path", "matrix", false, `"blue"`, ";color=blue"},
		{"path", "matrix", false, `["blue","black","brown"]`, ";color=blue,black,brown"},
		{"path", "matrix", false, object, ";color=B,150,G,200,R,100"},
		{"path", "matrix", true, `["blue","black","brown"]`, ";color=blue;color=black;color=brown"},
		{"path", "matrix", true, object, ";B=150;G=200;R=100"},
		{"path", "label", false, `"blue"`, ".blue"},
		{"path", "label", false, `["blue","black","brown"]`, ".blue,black,brown"},
		{"path", "label", false, object, ".B,150,G,200,R,100"},
		{"path", "label", true, `["blue","black","brown"]`, ".blue.black.brown"},
		{"path", "label", true, object, ".B=150.G=200.R=100"},
		{"path", "simple", false, `["blue","bl ack"]`, "blue,bl%20ack"},
		{"path", "simple", false, object, "B,150,G,200,R,100"},
		{"path", "simple", true, object, "B=150,G=200,R=100"},
		{"query", "form", false, `"bl&ue"`, "color=bl%26ue"},
		{"query", "form", false, `["blue","black"]`, "color=blue,black"},
		{"query", "form", false, object, "color=B,150,G,200,R,100"},
		{"query", "form", true, `["blue","black"]`, "color=blue&color=black"},
		{"query", "form", true, object, "B=150&G=200&R=100"},
		{"query", "form", true, `[]`, ""},
		{"query", "spaceDelimited", false, `["blue","black"]`, "color=blue%20black"},
		{"query", "pipeDelimited", false, `["blue","black"]`, "color=blue%7Cblack"},
		{"query", "deepObject", true, object, "color%5BB%5D=150&color%5BG%5D=200&color%5BR%5D=100"},
		{"query", "deepObject", true, `["blue",{"R":[100,null]}]`, "color%5B0%5D=blue&color%5B1%5D%5BR%5D%5B0%5D=100"},
		{"query", "deepObject", true, `{"a":{"b":[],"c":{"d e":true}},"z":null}`, "color%5Ba%5D%5Bc%5D%5Bd+e%5D=true"},
		{"query", "deepObject", true, strings.Repeat(`[`, 9) + `1` + strings.Repeat(`]`, 9), "color" + strings.Repeat("%5B0%5D", 8) + "=%5B1%5D"},
		{"query", "deepObject", true, `{"` + strings.Repeat("x", 256) + `":[1,2]}`, "color%5B" + strings.Repeat("x", 256) + "%5D=%5B1%2C2%5D"},
		{"query", "deepObject", true, `"blue"`, "color=blue"},
		{"query", "deepObject", true, `{}`, ""},
		{"header", "simple", false, `["blue","black"]`, "blue,black"},
		{"header", "simple", true, object, "B=150,G=200,R=100"},
		{"header", "simple", false, `true`, "true"},
	} {
		q := &param{name: "color", in: tt.in, style: tt.style, explode: tt.explode}
		v, _, err := q.valueOf(json.RawMessage(tt.value))
		got := ""
		if err == nil {
			switch tt.in {
			case "path":
				got, err = q.inPath(v)
			case "query":
				got = strings.Join(q.inQuery(v), "&")
			case "header":
				got, err = q.inHeader(v)
			}
		}
		if err != nil || got != tt.want {
			t.Errorf("%s %s %v %s: %q, %v; want %q", tt.in, tt.style, tt.explode, tt.value, got, err, tt.want)
		}
	}
}

// The encoding of a form determines how its members are written, as in Stripe's description.
func TestAFormIsWrittenByItsEncoding(t *testing.T) {
	t.Parallel()
	a := newAPI(t, `{"openapi":"3.0.0","info":{"title":"t","version":"1"},"paths":{"/x":{"post":{"operationId":"op","requestBody":{"content":{"application/x-www-form-urlencoded":{
		"encoding":{"metadata":{"style":"deepObject","explode":true},"items":{"style":"deepObject","explode":true},"tags":{"style":"pipeDelimited","explode":false},
			"ids":{"explode":false},"flat":{"style":"form"},"doc":{"contentType":"application/json"},"odd":{"style":"matrix"},"nothing":null},
		"schema":{"type":"object"}}}},"responses":{"200":{"description":"ok"}}}}}}`)
	tools, err := a.tools(t, aaif.Tool{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		`{"metadata":{"a":"b&c","n":1}}`:                      "metadata%5Ba%5D=b%26c&metadata%5Bn%5D=1",
		`{"items":[{"price":"p1"},{"price":"p2"}]}`:           "items%5B0%5D%5Bprice%5D=p1&items%5B1%5D%5Bprice%5D=p2",
		`{"tags":["a","b"],"ids":[1,2]}`:                      "ids=1,2&tags=a%7Cb",
		`{"flat":{"R":1,"G":2}}`:                              "G=2&R=1",
		`{"doc":["a"],"odd":{"k":1},"other":{"k":1},"n":[7]}`: "doc=%5B%22a%22%5D&n=7&odd=%7B%22k%22%3A1%7D&other=%7B%22k%22%3A1%7D",
	} {
		if _, err := tools["api"].Call(t.Context(), json.RawMessage(`{"body":`+args+`}`)); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if got := a.seen().Body; got != want {
			t.Errorf("%s is written as %s, want %s", args, got, want)
		}
	}
}

func TestLocalFilesAndTheirReferences(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const head = `{"openapi":"3.0.0","info":{"title":"t","version":"1"},"servers":[{"url":"https://api.example.com/v1"}],"paths":{"/x":{"post":{"operationId":"op","requestBody":{"content":{"application/json":{"schema":{"$ref":"%"}}}},"responses":{"200":{"description":"ok"}}}}}}`
	refer := func(to string) string { return strings.Replace(head, "%", to, 1) }
	write("allowed/good.json", refer("parts/pet.yaml#/Pet"))
	write("allowed/parts/pet.yaml", "Pet: {type: object, properties: {name: {$ref: 'names.json'}}}")
	write("allowed/parts/names.json", `{"type":"string","maxLength":7}`)
	write("secret.json", `{"type":"object","properties":{"stolen":{"type":"string"}}}`)
	write("allowed/up.json", refer("../secret.json"))
	write("allowed/absolute.json", refer(filepath.ToSlash(filepath.Join(dir, "secret.json"))))
	write("allowed/file.json", refer("file://"+filepath.ToSlash(filepath.Join(dir, "secret.json"))))
	write("allowed/http.json", refer("http://127.0.0.1:1/x.json"))
	write("allowed/relative.json", strings.Replace(refer("#/components/schemas/none"), "https://api.example.com", "", 1))
	if err := os.Symlink(filepath.Join(dir, "secret.json"), filepath.Join(dir, "allowed", "link.json")); err != nil {
		t.Fatal(err)
	}
	write("allowed/linked.json", refer("link.json"))
	p, err := outbound.New(outbound.Config{Allow: []string{"api.example.com"}, Files: []string{filepath.Join(dir, "allowed")}})
	if err != nil {
		t.Fatal(err)
	}
	a := &api{access: outbound.Access{Policy: p}}
	for _, name := range []string{"good.json", filepath.Join(dir, "allowed", "good.json"), "file://" + filepath.Join(dir, "allowed", "good.json")} {
		tools, err := a.tools(t, aaif.Tool{Endpoint: name}, Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := `{"additionalProperties":false,"properties":{"body":{"properties":{"name":{"maxLength":7,"type":"string"}},"type":"object"}},"type":"object"}`
		if got := string(tools["api"].Definition().Parameters); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for name, want := range map[string]string{
		"up.json": "not below its own folder", "absolute.json": "not below its own folder", "file.json": "not below its own folder", "http.json": "not below its own folder",
		"linked.json": "escapes", "missing.json": "there is no file", "../secret.json": "not allowed", filepath.Join(dir, "secret.json"): "not allowed", "/etc/passwd": "not allowed",
		"file://elsewhere/x.json": "no URL of a file", "relative.json": "",
	} {
		tools, err := a.tools(t, aaif.Tool{Endpoint: name}, Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", name, tools, err, want)
		}
	}
}

func TestServersAreChosenByThePolicy(t *testing.T) {
	t.Parallel()
	const text = `{"openapi":"3.1.0","info":{"title":"t","version":"1"},"servers":%,"paths":{"/x":{"get":{"operationId":"op","responses":{}}}}}`
	for _, tt := range []struct{ servers, override, want string }{
		{`[{"url":"https://nowhere.example"},{"url":"{U}/b"}]`, "", "/b/x"},
		{`[{"url":"https://nowhere.example"}]`, "{U}/mine/", "/mine/x"},
		{`[]`, "", "/x"},
		{`[{"url":"./v2/"}]`, "", "/v2/x"},
		{`[{"url":"https://nowhere.example"}]`, "", `!add "nowhere.example" to outbound.allow`},
		{`[{"url":"http://169.254.169.254/latest"}]`, "", `!a cloud's metadata service`},
		{`[{"url":"https://{host}/"}]`, "", `!variable without a default`},
	} {
		a := newAPI(t, "")
		description := strings.Replace(text, "%", strings.ReplaceAll(tt.servers, "{U}", a.url), 1)
		b := newAPI(t, description)
		p, err := outbound.New(outbound.Config{Allow: []string{a.url, b.url}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		b.access.Policy = p
		tools, err := b.tools(t, aaif.Tool{}, Options{Server: strings.ReplaceAll(tt.override, "{U}", a.url)})
		if want, fails := strings.CutPrefix(tt.want, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", tt.servers, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.servers, err)
			continue
		}
		if _, err := tools["api"].Call(t.Context(), nil); err != nil || a.seen().URI+b.seen().URI != tt.want {
			t.Errorf("%s: %s%s, %v", tt.servers, a.seen().URI, b.seen().URI, err)
		}
	}
}

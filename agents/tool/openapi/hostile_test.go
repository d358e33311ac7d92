package openapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/tool"
)

// around is a description with one operation whose body has a schema, and further
// schemas.
func around(body, schemas string) string {
	return `{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{"/x":{"post":{"operationId":"op","requestBody":{"content":{"application/json":{"schema":` + body +
		`}}},"responses":{}}}},"components":{"schemas":{` + schemas + `}}}`
}

// pathed is a description with one operation on a path.
func pathed(path string) string {
	return `{"openapi":"3.0.0","info":{"title":"t","version":"1"},"paths":{"` + path + `":{"post":{"responses":{}}}}}`
}

// yamlBomb would be 9 to the 9th values.
func yamlBomb() string {
	text := "openapi: 3.0.0\ninfo: {title: t, version: '1'}\nx-0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 9; i++ {
		text += fmt.Sprintf("x-%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ","))
	}
	return text
}

func TestHostileDescriptions(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	laughs := `"a0":{"type":"string"}`
	for i := 1; i < 60; i++ {
		laughs += fmt.Sprintf(`,"a%d":{"type":"object","properties":{"x":{"$ref":"#/components/schemas/a%d"},"y":{"$ref":"#/components/schemas/a%d"}}}`, i, i-1, i-1)
	}
	var net strings.Builder
	net.WriteString(`"w0":{"type":"string"}`)
	for i := 1; i < 400; i++ {
		fmt.Fprintf(&net, `,"w%d":{"type":"object","properties":{"p":true`, i)
		for k := 1; k <= min(i, 60); k++ {
			fmt.Fprintf(&net, `,"p%d":{"$ref":"#/components/schemas/w%d"}`, k, i-k)
		}
		net.WriteString("}}")
	}
	many := `"b0":{"type":"string"}`
	var chain strings.Builder
	for i := 1; i < 3000; i++ {
		fmt.Fprintf(&chain, `,"b%d":{"type":"array","items":{"$ref":"#/components/schemas/b%d"}}`, i, i-1)
	}
	var paths strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&paths, `,"/p%d":{"get":{"responses":{}}}`, i)
	}
	for name, tt := range map[string]struct{ text, want string }{ // want is "" if the description is read
		"exponential references":      {around(`{"$ref":"#/components/schemas/a59"}`, laughs), ""},
		"a long chain":                {around(`{"$ref":"#/components/schemas/b2999"}`, many+chain.String()), "too large"},
		"a wide net":                  {around(`{"$ref":"#/components/schemas/w399"}`, net.String()), "too large"},
		"a loop":                      {around(`{"$ref":"#/components/schemas/l"}`, `"l":{"type":"object","properties":{"l":{"$ref":"#/components/schemas/l"}}}`), ""},
		"a reference to itself":       {around(`{"$ref":"#/components/schemas/l"}`, `"l":{"$ref":"#/components/schemas/l"}`), "!"},
		"allOf of itself":             {around(`{"$ref":"#/components/schemas/l"}`, `"l":{"allOf":[{"$ref":"#/components/schemas/l"}]}`), "!"},
		"references in a ring":        {around(`{"$ref":"#/components/schemas/p"}`, `"p":{"$ref":"#/components/schemas/q"},"q":{"$ref":"#/components/schemas/p"}`), "!"},
		"a huge enum":                 {around(`{"enum":[`+strings.Repeat(`"x",`, 200_000)+`"y"]}`, ``), ""},
		"a huge text":                 {around(`{"type":"string","description":"`+strings.Repeat("x", 1<<20)+`"}`, ``), ""},
		"a huge pattern":              {around(`{"type":"string","pattern":"((((a{1,99}){1,99}){1,99}){1,99})"}`, ``), ""},
		"huge defaults":               {around(`{"type":"string","default":"`+strings.Repeat("x", 1<<20)+`"}`, ``), "too large"},
		"too deep":                    {around(strings.Repeat(`{"items":`, 5000)+`{}`+strings.Repeat(`}`, 5000), ``), "too deep"},
		"too many values":             {around(`{"enum":[`+strings.Repeat(`1,`, 2<<20)+`1]}`, ``), "too many values"},
		"too large":                   {strings.Repeat(" ", 9<<20), "larger than allowed"},
		"too many operations":         {`{"openapi":"3.0.0","info":{"title":"t","version":"1"},"paths":{"/p":{"get":{"responses":{}}}` + paths.String() + `}}`, "has 1001 operations"},
		"a YAML bomb":                 {yamlBomb(), "!"},
		"variables of a server":       {`{"openapi":"3.1.0","info":{"title":"t","version":"1"},"servers":[{"url":"http://{a}/","variables":{"a":{"default":"` + strings.Repeat("{b}", 1000) + `"},"b":{"default":"` + strings.Repeat("{c}", 1000) + `"},"c":{"default":"xxxxxxxxxx"}}}],"paths":{"/x":{"get":{"responses":{}}}}}`, "has a variable"},
		"a long variable":             {`{"openapi":"3.1.0","info":{"title":"t","version":"1"},"servers":[{"url":"` + strings.Repeat("{a}", 1000) + `","variables":{"a":{"default":"` + strings.Repeat("x", 1000) + `"}}}],"paths":{"/x":{"get":{"responses":{}}}}}`, "is too long"},
		"Swagger":                     {`{"swagger":"2.0"}`, "Swagger 2.0"},
		"no object":                   {`[]`, "not an object"},
		"no description":              {`{}`, "not OpenAPI 3.0 or 3.1"},
		"another version":             {`{"openapi":"4.0.0"}`, "not OpenAPI 3.0 or 3.1"},
		"a version that is none":      {`{"openapi":3}`, "not OpenAPI 3.0 or 3.1"},
		"no operations":               {`{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{}}`, "no operations"},
		"HTML":                        {`<html>log in</html>`, "!"},
		"nothing":                     {``, "!"},
		"broken":                      {`{"openapi":"3.0.0",`, "!"},
		"null everywhere":             {`{"openapi":"3.0.0","info":null,"paths":{"/x":null,"/y":{"get":null,"post":{"parameters":[null],"requestBody":null,"responses":null,"security":null}}},"components":null,"servers":[null],"security":[null]}`, "!"},
		"wrong types":                 {`{"openapi":"3.0.0","info":1,"paths":[]}`, "cannot be read"},
		"a reference to the disk":     {around(`{"$ref":"/etc/passwd"}`, ``), "not below its own folder"},
		"a file reference":            {around(`{"$ref":"file:///etc/passwd"}`, ``), "not below its own folder"},
		"a reference elsewhere":       {around(`{"$ref":"http://169.254.169.254/latest/meta-data"}`, ``), "not below its own folder"},
		"a reference upwards":         {around(`{"$ref":"//127.0.0.1:1/x"}`, ``), "not below its own folder"},
		"a path of a stranger":        {`{"openapi":"3.0.0","info":{"title":"t","version":"1"},"paths":{"@evil.example/":{"get":{"responses":{}}}}}`, "!"},
		"a path that climbs":          {`{"openapi":"3.0.0","info":{"title":"t","version":"1"},"paths":{"/a?b=c#d":{"get":{"responses":{}}}}}`, "is no path"},
		"a place without a parameter": {`{"openapi":"3.0.0","info":{"title":"t","version":"1"},"paths":{"/{x}":{"get":{"responses":{}}}}}`, "no parameter"},
		"a path to its parent":        {pathed("/../admin"), "leads out of the server's path"},
		"an escaped path":             {pathed("/%2e%2E/admin"), "leads out of the server's path"},
		"a path escaped twice":        {pathed("/%252e%252e%252fadmin"), "leads out of the server's path"},
		"a path with parameters":      {pathed("/..;v=1/admin"), "leads out of the server's path"},
		"a path with a backslash":     {pathed("/..%5cadmin"), "leads out of the server's path"},
		"a path with dots":            {pathed("/...;x=.y/.well-known/a..b"), ""},
		"a reference with parameters": {around(`{"$ref":"..;/a.json"}`, ``), "not below its own folder"},
		"an escaped reference":        {around(`{"$ref":"x/%2e%2e/a.json"}`, ``), ""},
		"a reference escaped twice":   {around(`{"$ref":"%252e%252e/a.json"}`, ``), "not below its own folder"},
		"a reference with backslash":  {around(`{"$ref":"..\\a.json"}`, ``), "not below its own folder"},
		"an escaped backslash":        {around(`{"$ref":"x/..%5c..%5ca.json"}`, ``), "not below its own folder"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t, tt.text)
			tools, err := a.tools(t, aaif.Tool{}, Options{})
			switch {
			case tt.want == "" && err != nil:
				t.Fatal(err)
			case tt.want == "":
				if n := len(tools["api"].Definition().Parameters); n > maxSchemaSize {
					t.Errorf("%d bytes of schema", n)
				}
				return
			case err == nil && tt.want == "!":
				for _, tl := range tools { // the guard must bound what the reader accepts
					_, _ = tool.Guard(tl, tool.Options{})
				}
			case err == nil || tt.want != "!" && !strings.Contains(err.Error(), tt.want):
				t.Errorf("%v, %v; want %q", tools, err, tt.want)
			}
			if err != nil && len(err.Error()) > 1500 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

// References over HTTP stay below the description's folder, and are bounded.
func TestReferencesOverHTTP(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		switch r.URL.Path {
		case "/api/v1/openapi.json":
			_, _ = io.WriteString(w, around(`{"$ref":"parts/a.json"}`, ``))
		case "/api/v1/up.json":
			_, _ = io.WriteString(w, around(`{"$ref":"../a.json"}`, ``))
		case "/api/v1/many.json":
			_, _ = io.WriteString(w, around(`{"$ref":"n/0.json"}`, ``))
		case "/api/v1/moved.json":
			_, _ = io.WriteString(w, around(`{"$ref":"moved/a.json"}`, ``))
		case "/api/v1/moved/a.json":
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		case "/api/v1/parts/a.json":
			_, _ = io.WriteString(w, `{"type":"integer"}`)
		default:
			if n, ok := strings.CutPrefix(r.URL.Path, "/api/v1/n/"); ok {
				fmt.Fprintf(w, `{"type":"object","properties":{"x":{"$ref":"%s1.json"}}}`, strings.TrimSuffix(n, ".json"))
			}
		}
	}))
	t.Cleanup(server.Close)
	p, err := outbound.New(outbound.Config{Allow: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	a := &api{access: outbound.Access{Policy: p}}
	tools, err := a.tools(t, aaif.Tool{Endpoint: server.URL + "/api/v1/openapi.json"}, Options{})
	if err != nil || !strings.Contains(string(tools["api"].Definition().Parameters), `"body":{"type":"integer"}`) {
		t.Errorf("%v, %v", tools, err)
	}
	for name, want := range map[string]string{"up.json": "not below", "many.json": "more than 32 files", "moved.json": "policy does not allow"} {
		asked = nil
		if _, err := a.tools(t, aaif.Tool{Endpoint: server.URL + "/api/v1/" + name}, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if len(asked) > maxDocuments+1 {
			t.Errorf("%s: %d requests", name, len(asked))
		}
	}
	if _, err := a.tools(t, aaif.Tool{Endpoint: server.URL + "/api/v1/moved.json"}, Options{}); !errors.Is(err, tool.ErrRefused) {
		t.Errorf("a refused redirect: %v", err)
	}
}

// Descriptions from the tests of the library: each is read, or refused with a reason, and its tools
// work behind a guard.
func TestDescriptionsByOthers(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/getkin/kin-openapi").Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Skip("the library's own test data is not here")
	}
	p, err := outbound.New(outbound.Config{Allow: []string{"*"}, Files: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	read, operations := 0, 0
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(name, "testdata") {
			return err
		}
		switch filepath.Ext(name) {
		case ".json", ".yml", ".yaml":
		default:
			return nil
		}
		head, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(head), "openapi") || !strings.Contains(string(head), "paths") || len(head) > 1<<20 {
			return err
		}
		src, err := Open(&aaif.Tool{Name: "api", Description: "d", Endpoint: name}, outbound.Access{Policy: p}, Options{Server: "https://api.example.com/base"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return nil
		}
		tools, err := src.Tools(t.Context())
		if err != nil {
			if !errors.Is(err, tool.ErrFailed) && !errors.Is(err, tool.ErrRefused) {
				t.Errorf("%s: %v", name, err)
			}
			t.Logf("%s: %.200v", strings.TrimPrefix(name, dir), err)
			return nil
		}
		read++
		for _, tl := range tools {
			operations++
			if _, err := tool.Guard(tl, tool.Options{}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
	if err != nil || read < 10 {
		t.Errorf("%d descriptions with %d operations are read, %v", read, operations, err)
	}
	t.Logf("%d descriptions, %d operations", read, operations)
}

func FuzzDescription(f *testing.F) {
	f.Add([]byte(petstore))
	f.Add([]byte(around(`{"$ref":"#/components/schemas/l"}`, `"l":{"type":"object","properties":{"l":{"$ref":"#/components/schemas/l"}}}`)))
	f.Add([]byte(`{"openapi":"3.0.0","info":{"title":"t","version":"1"},"security":[{"k":[]}],"paths":{"/x/{a}":{"get":{"parameters":[{"name":"a","in":"path","required":true,"style":"matrix","schema":{"type":"array"}}],"responses":{}}}},"components":{"securitySchemes":{"k":{"type":"apiKey","in":"query","name":"k"}}}}`))
	dir := f.TempDir()
	p, err := outbound.New(outbound.Config{Allow: []string{"api.example.com"}, Files: []string{dir}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		name := filepath.Join(dir, "x.yaml")
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		src, err := Open(&aaif.Tool{Name: "api", Description: "d", Endpoint: name}, outbound.Access{Policy: p}, Options{Server: "https://api.example.com/base"})
		if err != nil {
			t.Fatal(err)
		}
		tools, err := src.Tools(t.Context())
		if err != nil {
			return
		}
		for _, tl := range tools {
			if err := tl.Definition().Validate(); err != nil {
				t.Fatal(err)
			}
			args := map[string]json.RawMessage{"id": json.RawMessage(`".."`), "body": json.RawMessage(`{"a":[1]}`), "a": json.RawMessage(`["x","/"]`)}
			if r, err := tl.(*Operation).request(args); err == nil && (r.URL.Host != "api.example.com" || r.URL.User != nil || !strings.HasPrefix(r.URL.Path, "/base/")) {
				t.Fatalf("a request to %s", r.URL)
			}
		}
	})
}

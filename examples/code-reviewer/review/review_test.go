package review

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func writeSample(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "orders")
	if err := WriteSample(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	long := "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5bC7d"
	for line, want := range map[string]string{
		`key := "AK` + `IAIOSFODNN7EXAMPLE"`:                                     "aws-key 9 AKIA… (20 characters)",
		`-----BEGIN RSA PRIV` + `ATE KEY-----`:                                   "private-key 1 ----… (31 characters)",
		`-----BEGIN PRIV` + `ATE KEY-----`:                                       "private-key 1 ----… (27 characters)",
		`x := "gh` + `p_` + long + `"`:                                           "github-token 7 ghp_… (44 characters)",
		`x := "xox` + `b-1234567890-abc"`:                                        "slack-token 7 xoxb… (19 characters)",
		`x := "AIz` + `a` + long[:35] + `"`:                                      "google-key 7 AIza… (39 characters)",
		`x := "sk_li` + `ve_` + long[:24] + `"`:                                  "stripe-key 7 sk_l… (32 characters)",
		`x := "s` + `k-` + long[:30] + `"`:                                       "api-key 7 sk-a… (33 characters)",
		`seed = "SU` + strings.ToUpper(strings.Repeat("AB3D", 14)) + `"`:         "nats-seed 9 SUAB… (58 characters)",
		`x := "eyJ` + `hbGciOiJIUzI1NiJ9.eyJ` + `zdWIiOiIxMjM0In0.` + long + `"`: "jwt 7 eyJh… (81 characters)",
		`u := "https://bob:hunt` + `er2x@example.com/"`:                          "url-password 19 hu… (8 characters)",
		"password := `c0rrect-" + "horse`":                                       "hardcoded-secret 14 c0r… (13 characters)",
		`{"api_` + `key": "c0rrect-horse9"}`:                                     "hardcoded-secret 14 c0r… (14 characters)",
		`password := os.Getenv("DB_PASSWORD")`:                                   "",
		`password := "changeme1"`:                                                "",
		`token := "identifier"`:                                                  "",
		`tokenKind := "some-long-word"`:                                          "",
		`secret: "${VAULT_SECRET_1}"`:                                            "",
		`apiKey := "your-api-key-1"`:                                             "",
		`token = "aaaaaaaa1"`:                                                    "",
		`url := "https://example.com:8080/a@b"`:                                  "",
		`url := "postgres://user:$PASS@h/db"`:                                    "",
		`re := "-----BEGIN (RSA )?PRIVATE KEY-----"`:                             "",
	} {
		got := ""
		for _, f := range secretsIn(Source{"a.go", []byte("\n" + line)}) {
			_, shown, _ := strings.Cut(f.Message, ": ")
			got += fmt.Sprintf("%s %d %s", f.Rule, f.Column, shown)
		}
		if got != want {
			t.Errorf("%s\n got %q\nwant %q", line, got, want)
		}
	}
	for line, want := range map[string]int{
		"export DB_PASSWORD=c0rrect-" + "horse9":  1,
		"db_password: c0rrect-" + "horse9":        1,
		"db_password: ${DB_PASSWORD1}":            0,
		"password_file: /run/secrets/db1password": 0,
		"# password: see the wiki, page 12":       0,
	} {
		if got := len(secretsIn(Source{"a.yaml", []byte(line)})); got != want {
			t.Errorf("%s: %d findings, want %d", line, got, want)
		}
	}
}

func TestSummaryOfNothing(t *testing.T) {
	t.Parallel()
	r, err := summarize(context.Background(), summarizeArgs{})
	if err != nil || r.Summary != "No findings." || r.Findings == nil || r.Counts["total"] != 0 {
		t.Errorf("review %+v, error %v", r, err)
	}
	one := Finding{"a.go", 1, 1, "syntax", SeverityError, "x"}
	r, _ = summarize(context.Background(), summarizeArgs{Files: 1, Findings: []Finding{one, one}})
	if want := "1 finding in 1 file (1 Go file read): 1 error, 0 warnings, 0 info."; r.Summary != want {
		t.Errorf("summary %q, want %q", r.Summary, want)
	}
}

func TestWriteSampleOverwritesNothing(t *testing.T) {
	t.Parallel()
	dir := writeSample(t)
	if err := WriteSample(dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v, want %v", err, fs.ErrExist)
	}
}

func places(findings []Finding) (out []string) {
	for _, f := range findings {
		out = append(out, fmt.Sprintf("%s:%d:%d %s", f.File, f.Line, f.Column, f.Rule))
	}
	return out
}

func write(t *testing.T, src string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The demo's team votes on these.
func TestTokensShowFaultsOfTheSample(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"check_code": {"orders.go:29:7 copied-lock", "orders.go:72:3 defer-in-loop", "orders.go:83:7 lost-cancel", "orders.go:87:3 unreachable",
			"report.go:30:2 self-assignment"},
		"check_format": {"report.go:20:31 layout", "report.go:22:7 layout"},
	} {
		result, err := Call(t.Context(), Tools(writeSample(t), Checks{}), name, json.RawMessage(`{"path":"."}`))
		var r Report
		if err == nil {
			err = json.Unmarshal(result, &r)
		}
		if got := places(r.Findings); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: error %v, findings\n got %q\nwant %q", name, err, got, want)
		}
	}
}

// Each line with a comment "want RULE" has that finding, and no other line has any.
func TestTokens(t *testing.T) {
	t.Parallel()
	const src = `package p

import (
	"context"
	"sync"
)

type plain struct{ n int }

type guarded struct {
	mu sync.Mutex
}

type pointed struct {
	mu *sync.Mutex
}

func (g guarded) bad()   {} // want copied-lock
func (g *guarded) good() {}
func (p pointed) good()  {}
func (p plain) good()    {}

func loops(xs []func()) {
	defer xs[0]()
	for _, x := range xs {
		defer x() // want defer-in-loop
		if x != nil {
			defer x() // want defer-in-loop
		}
		func() {
			defer x()
		}()
	}
	defer xs[0]()
}

func cancels(ctx context.Context) {
	ctx, _ = context.WithCancel(ctx) // want lost-cancel
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	ctx, _ = other.WithCancel(ctx)
}

func selves(a, b plain) {
	a.n = a.n // want self-assignment
	a.n = b.n
	a.n += a.n
	a, b = b, a
}

var zero plain

func returns(n int) (int, plain) {
	switch n {
	case 1:
		return 1, plain{
			n: 2,
		}
	case 2:
		return 2, zero
		n++ // want unreachable
	}
	if n > 3 {
		return 3, plain{}
	}
	f := func() int { return 1 }
	goto end
end:
	return f(), plain{}
	panic("never")
}
`
	var want []string
	for i, line := range strings.Split(src, "\n") {
		if _, rule, ok := strings.Cut(line, "// want "); ok {
			want = append(want, fmt.Sprintf("%d %s", i+1, rule))
		}
	}
	r, err := CheckTokens(t.Context(), write(t, src), ".")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.Findings {
		got = append(got, fmt.Sprintf("%d %s", f.Line, f.Rule))
	}
	if !slices.Equal(got, want) {
		t.Errorf("findings\n got %q\nwant %q", got, want)
	}
	if r, err := CheckLayout(t.Context(), write(t, src), "."); err != nil || len(r.Findings) > 0 {
		t.Errorf("gofmt's own form: %+v, error %v", r, err)
	}
}

func FuzzTokens(f *testing.F) {
	f.Add("package p\n\nfunc f() { for { defer g() }; return; x = x }\n")
	f.Add("}}}{{{ return )( for func type T struct {")
	f.Add("ctx, _ = context.WithCancel")
	f.Fuzz(func(t *testing.T, src string) {
		root := write(t, src)
		for _, check := range []Check{CheckTokens, CheckLayout} {
			r, err := check(t.Context(), root, ".")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Findings {
				if f.Line < 1 || f.Column < 1 || f.Line > strings.Count(src, "\n")+1 {
					t.Errorf("finding %+v is nowhere", f)
				}
			}
		}
	})
}

package reviewer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Each rule has code that breaks it, at the lines marked "// want RULE", and
// code that looks alike and does not.
var ruleTests = map[string]string{
	"ignored-error": `
import ("bytes"; "encoding/json"; "fmt"; "os"; "strings"; "example.com/unknown")
func two() (int, error) { return 0, nil }
func one() error { return nil }
type closer interface{ Close() error }
func f(file *os.File, b *strings.Builder, buf *bytes.Buffer, c closer, e *json.Encoder) {
	os.Remove("x") // want ignored-error
	two() // want ignored-error
	one() // want ignored-error
	(one()) // want ignored-error
	file.Close() // want ignored-error
	c.Close() // want ignored-error
	e.Encode(1) // want ignored-error
	func() error { return nil }() // want ignored-error
	_ = os.Remove("x")
	_, _ = two()
	if err := one(); err != nil { return }
	defer file.Close()
	go one()
	fmt.Println("x")
	fmt.Fprintf(b, "x")
	b.WriteString("x")
	buf.WriteByte('x')
	unknown.Do()
	os.Unknown()
	len("x")
}`,
	"printf": `
import ("fmt"; "log"; "os"; "testing"; "time")
type named int
func (named) String() string { return "" }
type plain int
type failing struct{}
func (*failing) Error() string { return "" }
func f(t *testing.T, err error, any any, l *log.Logger, xs []int, d time.Duration, args []interface{}) {
	fmt.Printf("%d", "x") // want printf
	fmt.Printf("%s", 1) // want printf
	fmt.Printf("%t", 1) // want printf
	fmt.Printf("%f", 1) // want printf
	fmt.Printf("%z", 1) // want printf
	fmt.Printf("%d") // want printf
	fmt.Printf("%d", 1, 2) // want printf
	fmt.Printf("x", 1) // want printf
	fmt.Printf("%*d", "w", 1) // want printf
	fmt.Printf("50%", 1) // want printf
	fmt.Printf("%w", err) // want printf
	fmt.Errorf("%w", 1) // want printf
	fmt.Sprintf("%s", plain(1)) // want printf
	fmt.Fprintf(os.Stderr, "%d\n") // want printf
	log.Fatalf("%d", 1.5) // want printf
	l.Printf("%s %s", "x") // want printf
	t.Errorf("%d", true) // want printf
	const format = "%d"
	fmt.Printf(format, "x") // want printf
	fmt.Printf("%d %s %v %5.2f %t %q %c %x %+v %#v %T %p %%\n", 1, "x", xs, 1.5, true, 'x', 'y', "z", err, any, d, t)
	fmt.Printf("%s %d %s %v", named(1), plain(1), d, plain(1))
	fmt.Printf("%*.*f|%-5s|%08b|%U", 5, 2, 1.5, "x", 7, 'x')
	fmt.Printf("%s %d %v", any, any, any)
	fmt.Printf("%d", xs)
	fmt.Printf("%[2]d %[1]d", 1, 2)
	fmt.Printf("%d", args...)
	fmt.Println("fine", 1)
	fmt.Errorf("%w and %w", err, &failing{})
	dynamic := "%d"
	fmt.Printf(dynamic, "x")
}`,
	"shadowed-error": `
import "os"
func g() (int, error) { return 0, nil }
func a(ok bool) (err error) {
	if ok {
		n, err := g() // want shadowed-error
		_, _ = n, err
	}
	return err
}
func b(ok bool) (err error) {
	if ok {
		n, err := g() // want shadowed-error
		_, _ = n, err
	}
	return
}
func c(ok bool) error {
	_, err := g()
	switch {
	case ok:
		n, err := g() // want shadowed-error
		_, _ = n, err
	}
	return err
}
func returned(ok bool) (err error) {
	if ok {
		n, err := g()
		if err != nil { return err }
		_ = n
	}
	return err
}
func initialised() (err error) {
	if err := os.Remove("x"); err != nil { println("x") }
	return err
}
func reassigned() error {
	_, err := g()
	{
		_, err := g()
		_ = err
	}
	err = os.Remove("x")
	return err
}
func neverRead(ok bool) {
	_, err := g()
	_ = err
	if ok {
		_, err := g()
		_ = err
	}
}
func literal() (err error) {
	f := func() {
		_, err := g()
		_ = err
	}
	f()
	return err
}`,
	"defer-in-loop": `
func close() {}
func f(xs []int) {
	defer close()
	for range xs {
		defer close() // want defer-in-loop
		if true { defer close() } // want defer-in-loop
		func() { defer close() }()
		go func() {
			defer close()
			for { defer close() } // want defer-in-loop
		}()
	}
	for i := 0; i < 3; i++ {
		for { defer close() } // want defer-in-loop
	}
	func() { defer close() }()
}`,
	"copied-lock": `
import "sync"
type guarded struct { mu sync.Mutex; n int }
type deep struct { inner [2]guarded }
type pointed struct { mu *sync.Mutex }
func (g guarded) Bad() {} // want copied-lock
func (g *guarded) Good() {}
func param(wg sync.WaitGroup) {} // want copied-lock
func paramDeep(d deep) {} // want copied-lock
func pointer(g *guarded, p pointed, mu *sync.RWMutex) {}
func generic[T any](v T) { w := v; _ = w }
func make_() guarded { return guarded{} }
func f(gs []guarded, g *guarded, m map[string]*guarded) guarded {
	a := *g // want copied-lock
	b := gs[0] // want copied-lock
	var c = a // want copied-lock
	a = c // want copied-lock
	param2(b) // want copied-lock
	for _, x := range gs { _ = x.n } // want copied-lock
	for i := range gs { gs[i].n++ }
	for _, x := range m { x.n++ }
	d := guarded{}
	e := make_()
	h := &gs[0]
	_ = a
	_, _, _ = d.n, e.n, h
	println(len(gs))
	_ = deep{inner: [2]guarded{}}
	_ = struct{ g guarded }{g: a} // want copied-lock
	n := new(guarded)
	_ = n
	return b // want copied-lock
}
func param2(any) {}`,
	"unreachable": `
import "os"
func a() int {
	return 1
	println("x") // want unreachable
}
func b() {
	for {
		println("x")
	}
	println("y") // want unreachable
}
func c(n int) int {
	if n > 0 { return 1 } else { panic("x") }
	n++ // want unreachable
	return n
}
func d(n int) int {
	switch n {
	case 1: return 1
	default: return 2
	}
	return 3 // want unreachable
}
func e(ch chan int) {
	select {
	case <-ch: return
	}
	println("x") // want unreachable
}
func f() {
	for {
		break
		println("x") // want unreachable
	}
	for {
		continue
		println("x") // want unreachable
	}
}
func fine(n int, ch chan int) int {
	for { if n > 0 { break } }
	for { select { case <-ch: break; default: n++ }; if n > 3 { break } }
outer:
	for { for { break outer } }
	switch n { case 1: return 1 }
	switch n { case 1: return 1; default: if n > 1 { break }; return 2 }
	switch n { case 1: fallthrough; case 2: return 2 }
	select { case <-ch: return 3; default: }
	if n > 0 { return 1 }
	goto end
end:
	{ var panic = func(any) {}; panic("shadowed"); println("x") }
	os.Exit(1)
	for n > 0 { return 1 }
	return 1
}
func panics() int {
	for {}
	panic("unreachable")
}`,
	"typed-nil": `
type problem struct{}
func (*problem) Error() string { return "" }
func (*problem) String() string { return "" }
func a(n int) error {
	var p *problem
	if n > 0 { p = &problem{} }
	return p // want typed-nil
}
func b() (int, interface{ String() string }) {
	var p, q *problem
	_ = q
	return 1, p // want typed-nil
}
func c() error { return nil }
func d() *problem { var p *problem; return p }
func e() error { p := &problem{}; return p }
func f() error { var err error; return err }
func g(p *problem) error { return p }
func h() error {
	var p *problem
	f := func() *problem { return p }
	_ = f
	if p != nil { return p } // want typed-nil
	return nil
}`,
	"lost-cancel": `
import ("context"; "time")
func f(ctx context.Context) {
	a, _ := context.WithCancel(ctx) // want lost-cancel
	b, _ := context.WithTimeout(ctx, time.Second) // want lost-cancel
	ctx, _ = context.WithDeadline(ctx, time.Now()) // want lost-cancel
	c, cancel := context.WithCancel(ctx)
	defer cancel()
	d := context.WithValue(ctx, 1, 2)
	_, _, _, _ = a, b, c, d
}`,
	"nil-map": `
type table map[string]int
func f(k string) {
	var m map[string]int
	m[k] = 1 // want nil-map
	var n table
	n[k]++ // want nil-map
	var made map[string]int
	made = map[string]int{}
	made[k] = 1
	var lent map[string]int
	fill(&lent)
	lent[k] = 1
	var read map[string]int
	_ = read[k]
	delete(read, k)
	local := map[string]int{}
	local[k] = 1
	var s []int
	s[0] = 1
	var late map[string]int
	func() { late = map[string]int{} }()
	late[k] = 1
}
func fill(*map[string]int) {}`,
	"string-int": `
import "strconv"
type text string
func f(n int, u uint64, r rune, b byte, bs []byte, s text) {
	_ = string(n) // want string-int
	_ = string(u) // want string-int
	_ = text(n) // want string-int
	_ = string(r)
	_ = string(b)
	_ = string(bs)
	_ = string(s)
	_ = string('x')
	_ = strconv.Itoa(n)
	_ = int64(n)
}`,
	"unmarshal-value": `
import ("encoding/json"; "io")
type v struct{}
func f(data []byte, r io.Reader, any any, p *v, m map[string]int) {
	var x v
	_ = json.Unmarshal(data, x) // want unmarshal-value
	_ = json.Unmarshal(data, m) // want unmarshal-value
	_ = json.NewDecoder(r).Decode(x) // want unmarshal-value
	_ = json.Unmarshal(data, &x)
	_ = json.Unmarshal(data, p)
	_ = json.Unmarshal(data, any)
	_ = json.NewDecoder(r).Decode(&m)
}`,
	"self": `
type s struct{ a, b int; f float64 }
func f(x, y *s, xs []int, g func() int) bool {
	x.a = x.a // want self-assignment
	x.a, y.a = y.a, x.a
	x.a = y.a
	x = x // want self-assignment
	xs[0] = xs[0]
	n := 1
	n += n
	f := x.f
	if f != f { return true }
	const c = 1
	_ = c == c
	_ = g() == g()
	_ = x.a == x.b
	_ = xs[0] == xs[0]
	_ = x.a - x.a // want self-comparison
	_ = x.a + x.a
	return x.a == x.a && n > 0 // want self-comparison
}`,
}

func TestRules(t *testing.T) {
	t.Parallel()
	for name, src := range ruleTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src = "package p\n" + src
			var want []string
			for i, line := range strings.Split(src, "\n") {
				if _, rule, ok := strings.Cut(line, "// want "); ok {
					want = append(want, fmt.Sprintf("a.go:%d %s", i+1, rule))
				}
			}
			if len(want) == 0 {
				t.Fatal("a rule that nothing breaks is not tested")
			}
			r, err := checkCode(t.Context(), write(t, map[string]string{"a.go": src}), ".")
			if err != nil {
				t.Fatal(err)
			}
			// Other rules may have their say about the same lines.
			var got []string
			for _, f := range r.Findings {
				if strings.HasPrefix(f.Rule, name) {
					got = append(got, fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Rule))
				}
				if f.Rule == "syntax" {
					t.Fatalf("the test's source is no Go: %+v", f)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("findings\n got %v\nwant %v", got, want)
			}
		})
	}
}

func TestTypesAreKnownAcrossTheFilesOfAPackage(t *testing.T) {
	t.Parallel()
	root := write(t, map[string]string{
		"p/a.go":      "package p\n\nfunc work() error { return nil }\n",
		"p/b.go":      "package p\n\nfunc f() {\n\twork()\n}\n",
		"p/b_test.go": "package p_test\n\nfunc work() int { return 1 }\n\nfunc f() {\n\twork()\n}\n",
		"q/a.go":      "package q\n\nfunc work() int { return 1 }\n\nfunc f() {\n\twork()\n}\n",
	})
	r, err := checkCode(t.Context(), root, ".")
	if got, want := fmt.Sprint(places(r.Findings)), "[p/b.go:4 ignored-error]"; err != nil || got != want {
		t.Errorf("findings %s, error %v, want %s", got, err, want)
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("var _ = 1\n", 3000)
	for name, c := range map[string]struct{ src, want string }{
		"formatted":         {"package a\n\nvar x = 1\n", "[]"},
		"empty lines":       {"package a\n\n\n\nvar x = 1\n", "[3-4 gofmt]"},
		"one line":          {"package a\n\nvar x  = 1\nvar y = 1\n", "[3-3 gofmt]"},
		"two places":        {"package a\n\nvar x  = 1\n\nvar y = 1\n\nvar z=1\n", "[3-3 gofmt 7-7 gofmt]"},
		"no final newline":  {"package a\n\nvar x = 1", "[3-3 gofmt]"},
		"a line is missing": {"package a\nvar x = 1\n", "[2-2 gofmt]"},
		"trailing lines":    {"package a\n\nvar x = 1\n\n\n", "[4-5 gofmt]"},
		"carriage returns":  {"package a\r\n\r\nvar x = 1\r\n", "[1-3 gofmt]"},
		"large":             {"package a\n\n" + strings.ReplaceAll(long, " ", "  "), "[3-3002 gofmt]"},
		"syntax":            {"package a\n\nfunc {\n", "[3-3 syntax]"},
		"not Go":            {"<html>\n", "[1-1 syntax]"},
		"nothing":           {"", "[1-1 syntax]"},
	} {
		r, err := checkFormat(t.Context(), write(t, map[string]string{"a.go": c.src}), "a.go")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, f := range r.Findings {
			last := f.Line
			fmt.Sscanf(f.Message, "lines %d to %d", new(int), &last)
			got = append(got, fmt.Sprintf("%d-%d %s", f.Line, last, f.Rule))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: got %v, want %s", name, got, c.want)
		}
	}
}

func TestSyntaxErrorsQuoteNoLiterals(t *testing.T) {
	t.Parallel()
	r, err := checkFormat(t.Context(), write(t, map[string]string{"a.go": "package a\n\nvar x = 1 \"q7Zp-41fLx9\"\nimport `q7Zp`\n"}), ".")
	if err != nil || len(r.Findings) == 0 || strings.Contains(fmt.Sprint(r.Findings), "q7Zp") {
		t.Errorf("findings %+v, error %v", r.Findings, err)
	}
}

// The secrets here are put together at run time, so that no scanner, ours
// included, takes this file for a leak.
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
		for _, f := range secretsIn(source{"a.go", []byte("\n" + line)}) {
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
		if got := len(secretsIn(source{"a.yaml", []byte(line)})); got != want {
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

func TestStubsAreComplete(t *testing.T) {
	t.Parallel()
	s := newStubs()
	for name := range s.sources {
		if _, err := s.Import(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for path, want := range map[string]string{"example.com/a": "a", "example.com/a/v2": "a", "unsafe": "unsafe"} {
		if p, err := s.Import(path); err != nil || p.Name() != want {
			t.Errorf("%s: %v, %v", path, p, err)
		}
	}
}

func FuzzCheckers(f *testing.F) {
	for _, src := range ruleTests {
		f.Add("package p\n" + src)
	}
	f.Add(leaky)
	f.Fuzz(func(t *testing.T, src string) {
		root := write(t, map[string]string{"a.go": src})
		for _, check := range []func(context.Context, string, string) (*Report, error){checkFormat, checkCode, findSecrets} {
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

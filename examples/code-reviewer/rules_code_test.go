package main

// Each rule has code that violates it, at the lines marked "// want RULE", and similar code that
// does not.
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

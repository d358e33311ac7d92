package soak

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"
)

// echo starts a server that sends back what it receives.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

type line struct {
	c net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, p *Proxy) line {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return line{c, bufio.NewReader(c)}
}

func (l line) ask(t *testing.T, text string) {
	t.Helper()
	l.say(t, text)
	l.hear(t, text)
}

func (l line) say(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(l.c, text+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (l line) hear(t *testing.T, text string) {
	t.Helper()
	l.c.SetReadDeadline(time.Now().Add(10 * time.Second))
	got, err := l.r.ReadString('\n')
	if err != nil || got != text+"\n" {
		t.Fatalf("heard %q, %v; want %q", got, err, text)
	}
}

func testProxy(t *testing.T) *Proxy {
	t.Helper()
	p, err := NewProxy(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestProxyHoldsAndReleases(t *testing.T) {
	t.Parallel()
	p := testProxy(t)
	a := dial(t, p)
	a.ask(t, "one")
	first, second := p.Hold(), p.Hold()
	a.say(t, "two")
	b := dial(t, p)
	b.say(t, "three")
	first()
	a.c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := a.r.Peek(1); err == nil {
		t.Fatal("a byte came through what another fault still holds")
	}
	second()
	a.hear(t, "two")
	b.hear(t, "three")
}

func TestProxyCutsOpenAndNewConnections(t *testing.T) {
	t.Parallel()
	p := testProxy(t)
	a := dial(t, p)
	a.ask(t, "one")
	mend := p.Cut()
	a.c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := a.r.ReadByte(); err == nil {
		t.Fatal("the connection was not cut")
	}
	b, err := net.Dial("tcp", p.Addr())
	if err == nil {
		b.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := b.Read(make([]byte, 1)); err == nil {
			t.Fatal("a new connection was not cut")
		}
		b.Close()
	}
	mend()
	dial(t, p).ask(t, "two")
}

func TestProxyDelays(t *testing.T) {
	t.Parallel()
	p := testProxy(t)
	a := dial(t, p)
	a.ask(t, "one")
	undo := p.Delay(30 * time.Millisecond)
	from := time.Now()
	a.ask(t, "two")
	if took := time.Since(from); took < 60*time.Millisecond {
		t.Errorf("there and back took %v, with 30 ms of delay each way", took)
	}
	undo()
	a.ask(t, "three")
}

func TestProxyOutlivesItsTarget(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	p, err := NewProxy(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	a, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return // reset before it was accepted
	}
	defer a.Close()
	a.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := a.Read(make([]byte, 1)); err == nil {
		t.Fatal("nobody is there, and somebody spoke")
	}
}

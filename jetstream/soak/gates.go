package soak

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
)

// gates is the worker's side of the points: it stops at a point that the soak has armed,
// reports that, and waits until the soak lets it continue or kills it.
type gates struct {
	out io.Writer

	mu    sync.Mutex
	armed map[Point][]string       // tokens
	shut  map[string]chan struct{} // by token: the waiting goroutine's channel
}

func newGates(out io.Writer) *gates {
	return &gates{out: out, armed: map[Point][]string{}, shut: map[string]chan struct{}{}}
}

// listen reads the soak's commands until stdin closes.
func (g *gates) listen(in io.Reader) {
	for words := bufio.NewScanner(in); words.Scan(); {
		f := strings.Fields(words.Text())
		switch {
		case len(f) == 3 && f[0] == "arm":
			g.mu.Lock()
			g.armed[Point(f[2])] = append(g.armed[Point(f[2])], f[1])
			g.mu.Unlock()
		case len(f) == 2 && f[0] == "go":
			g.mu.Lock()
			if c := g.shut[f[1]]; c != nil {
				close(c)
				delete(g.shut, f[1])
			}
			g.mu.Unlock()
		}
	}
}

// at is called at each point. It returns at once unless the point is armed.
func (g *gates) at(ctx context.Context, p Point, run string) {
	g.mu.Lock()
	tokens := g.armed[p]
	if len(tokens) == 0 {
		g.mu.Unlock()
		return
	}
	token := tokens[0]
	g.armed[p] = tokens[1:]
	open := make(chan struct{})
	g.shut[token] = open
	_, err := fmt.Fprintf(g.out, "hit %s %s %s\n", token, p, run)
	g.mu.Unlock()
	if err != nil {
		return
	}
	select {
	case <-open:
	case <-ctx.Done():
	}
}

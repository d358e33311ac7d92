package traffic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	xterm "golang.org/x/term"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/mesh/tree"
)

const (
	// treeFrame is the minimum time between two drawings.
	treeFrame = 150 * time.Millisecond
	// treeQuiet is how long no event must arrive after the end: the last events
	// of a task may arrive after its answer.
	treeQuiet = 400 * time.Millisecond
	// treePatience is how long to wait for events before reading runs.
	treePatience = time.Second
)

// errTreeFailed ends a follow whose task failed; the tree has shown why.
var errTreeFailed = errors.New("the task failed")

// follow draws the tree as it grows, until it ends.
func (r *treeReader) follow(ctx context.Context) error {
	limited, cancel := r.app.Limited(ctx)
	defer cancel()
	events, err := r.listen(limited)
	if err != nil {
		return err
	}
	view := &treeView{app: r.app, flags: r.flags, redraws: r.app.Term.Data.TTY && !r.app.Term.JSON && !r.flags.dot}
	if !view.redraws {
		r.app.Term.Note("waiting for the outcome of %s", term.Printable(r.wanted))
	}
	frame := time.NewTicker(treeFrame)
	defer frame.Stop()
	last, looked := time.Now(), false
	for over := false; !over; {
		select {
		case h, more := <-events:
			if h.err != nil {
				return h.err
			}
			if !more {
				over = true
				break
			}
			if e, ok := r.take(h.at, h.data); ok {
				last = time.Now()
				if !r.app.Term.JSON && !r.flags.dot && !view.redraws {
					r.app.Term.Line("%s", SightingText(r.app.Term.Data, Sighting{At: h.at, Env: e, By: Vouch(r.ring, e, h.at)}, false))
				}
			}
			continue
		case <-frame.C:
		}
		if r.app.Term.Broken() {
			return nil
		}
		if r.builder == nil && !looked && time.Since(last) > treePatience {
			looked = true // there may be a run without any stored event
			if err := r.records(limited); err != nil {
				r.app.Log.Debug("no records", "err", err)
			}
		}
		t := r.tree(time.Now())
		if t == nil {
			continue
		}
		view.draw(t)
		over = over || t.State.Ended() && time.Since(last) > treeQuiet
	}
	looking, stop := context.WithTimeout(context.WithoutCancel(ctx), r.app.Conn.Wait())
	defer stop()
	if r.builder != nil {
		if err := r.records(looking); err != nil {
			r.app.Log.Debug("no records", "err", err)
		}
	}
	t := r.tree(time.Now())
	if t == nil {
		err := outcome.NotFound("no event of %s has come", term.Printable(r.wanted))
		if over := limited.Err(); over != nil {
			err = outcome.Stopped(over, "stopped waiting: %w", err)
		}
		return outcome.Hinted(err, "Is it the corr of a task, its id or its run's? \"aeemesh watch\" shows what goes on.")
	}
	view.clear()
	if !view.redraws && !r.app.Term.JSON && !r.flags.dot {
		r.app.Term.Line("")
	}
	if err := r.print(t); err != nil {
		return err
	}
	switch {
	case t.State == tree.Failed:
		return outcome.Hinted(errTreeFailed, "%s", treeHint(t))
	case !t.State.Ended():
		return outcome.Hinted(outcome.Stopped(limited.Err(), "stopped waiting; the task goes on"), "\"aeemesh tree %s --follow\" goes on looking.", term.Printable(r.wanted))
	}
	return nil
}

// treeHint says where to find more about a failure.
func treeHint(t *tree.Tree) string {
	for _, n := range t.Roots {
		if n.State == tree.Failed && n.Lane == "durable" {
			return fmt.Sprintf("\"aeemesh result %s %s\" has its error.", term.Printable(n.ID), term.Printable(n.Entity))
		}
	}
	return ""
}

// treeView draws a tree repeatedly in the same place.
type treeView struct {
	app     *session.App
	flags   *TreeFlags
	redraws bool
	lines   int    // of the last drawing
	drawn   string // the last drawing
}

// draw replaces the last drawing.
func (v *treeView) draw(t *tree.Tree) {
	if !v.redraws {
		return
	}
	out := v.app.Term.Data
	width, height := 80, 24
	if f, ok := out.Writer.(*os.File); ok {
		if w, h, err := xterm.GetSize(int(f.Fd())); err == nil && w > 0 && h > 2 {
			width, height = w, h
		}
	}
	text := fitted(t, v.flags.siblings(), width, height-1, statePainter(out))
	if text == v.drawn {
		return
	}
	v.clear()
	out.Write([]byte(text))
	v.drawn, v.lines = text, strings.Count(text, "\n")
}

// fitted draws a tree so that it fits into a terminal: it shows fewer members
// of each team as needed, and finally cuts off the bottom.
func fitted(t *tree.Tree, fold, width, height int, paint func(tree.State, string) string) string {
	var text string
	for _, n := range []int{fold, 8, 4, 2, 1} {
		if n > fold && fold > 0 {
			continue
		}
		text = t.Text(tree.TextOptions{Fold: n, Width: width, Paint: paint})
		if strings.Count(text, "\n") <= height {
			return text
		}
	}
	lines := strings.SplitAfter(text, "\n")
	cut := max(1, height-1)
	return strings.Join(lines[:cut], "") + fmt.Sprintf("… %d more lines\n", len(lines)-1-cut)
}

// clear erases the last drawing.
func (v *treeView) clear() {
	if v.lines > 0 {
		fmt.Fprintf(v.app.Term.Data, "\x1b[%dA\r\x1b[J", v.lines)
	}
	v.lines, v.drawn = 0, ""
}

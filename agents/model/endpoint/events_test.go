package endpoint_test

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

// readAll reads events until one fails.
func readAll(r io.Reader, most int64) (all []string, err error) {
	events := endpoint.NewEvents(r, most)
	for {
		data, err := events.Next()
		if err != nil {
			if _, again := events.Next(); again != err {
				return all, errors.New("the error does not stay")
			}
			return all, err
		}
		all = append(all, string(data))
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	for stream, want := range map[string][]string{
		"":                           nil,
		"data: a\n\ndata: b\n\n":     {"a", "b"},
		"data:a\ndata:  b\ndata\n\n": {"a\n b\n"},
		": hi\nevent: x\nid: 1\ndata: a\nretry: 5\nnonsense\n\n": {"a"},
		"event: x\n\nid: 7\n\ndata: a\n\n":                       {"a"},
		"data: \n\ndata:\n\n":                                    {"", ""},
		"\n\n\ndata: a\n\n\n\n":                                  {"a"},
		"data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n":              {"a\nb", "c"},
		"data: a\rdata: b\r\rdata: c\r\r":                        {"a\nb", "c"},
		"data: a\r\n\rdata: b\n\r\n":                             {"a", "b"},
		"\ufeffdata: a\n\ndata: \ufeffb\n\n":                     {"a", "\ufeffb"},
		"data: a\n\ndata: cut":                                   {"a"},
		"data: a\n\ndata: cut\n":                                 {"a"},
		"Data: a\n\ndatax: b\n\n data: c\n\n":                    nil,
		"data: a: b\n\n":                                         {"a: b"},
	} {
		for name, r := range map[string]io.Reader{"at once": strings.NewReader(stream), "byte by byte": iotest.OneByteReader(strings.NewReader(stream)), "with the end": iotest.DataErrReader(strings.NewReader(stream))} {
			if got, err := readAll(r, 1<<20); err != io.EOF || !slices.Equal(got, want) {
				t.Errorf("%q %s: %q, %v, want %q", stream, name, got, err, want)
			}
		}
	}
}

func TestStrayLinesAreKept(t *testing.T) {
	t.Parallel()
	events := endpoint.NewEvents(strings.NewReader(": hi\nevent: x\nid\nretry: 1\ndata: a\n\n{\n \"error\": 1\r\n}\n\ndata: b\n\n"+strings.Repeat("x", 80)+"\n\ndata: c\n\n"), 100)
	for _, want := range []string{"", "{\n \"error\": 1\n}\n", "{\n \"error\": 1\n}\n" + strings.Repeat("x", 80) + "\n"} {
		if _, err := events.Next(); err != nil || string(events.Stray()) != want {
			t.Errorf("%q, error %v, want %q", events.Stray(), err, want)
		}
	}
	events = endpoint.NewEvents(strings.NewReader(strings.Repeat(strings.Repeat("x", 49)+"\n", 5)), 100)
	if _, err := events.Next(); err != io.EOF || len(events.Stray()) != 100 {
		t.Errorf("%d bytes, error %v, want 100", len(events.Stray()), err)
	}
}

func TestEventsTellWhyTheyEnd(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if got, err := readAll(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), 100); err != broken || !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q, %v, want the reader's error behind one event", got, err)
	}
	for name, stream := range map[string]string{
		"a line":      "data: a\n\ndata: " + strings.Repeat("x", 101) + "\n\n",
		"many lines":  "data: a\n\n" + strings.Repeat("data: 0123456789\n", 10) + "\n",
		"a comment":   "data: a\n\n:" + strings.Repeat("x", 5000) + "\ndata: b\n\n",
		"without end": "data: a\n\n" + strings.Repeat("x", 5000),
	} {
		if got, err := readAll(strings.NewReader(stream), 100); err != model.ErrAnswerTooLarge || !slices.Equal(got, []string{"a"}) {
			t.Errorf("%s: %q, %v, want %v behind one event", name, got, err, model.ErrAnswerTooLarge)
		}
	}
}

// The decoder agrees with a literal implementation of the specification, for any division of the
// stream.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "data: a\r\ndata: b\r\r\n: c\n\n", "\ufeffdata\ndata:\n\n\ndata: cut", "event: x\n\ndata:  y\r\n\r\n"} {
		f.Add(s, uint8(1))
	}
	f.Fuzz(func(t *testing.T, stream string, chunk uint8) {
		got, err := readAll(bufio.NewReaderSize(&chunked{stream, int(chunk)%7 + 1}, 16), 1<<20)
		if want := plainly(stream); err != io.EOF || !slices.Equal(got, want) {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	})
}

type chunked struct {
	rest string
	size int
}

func (c *chunked) Read(p []byte) (int, error) {
	if c.rest == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(c.size, len(p))], c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func plainly(stream string) (all []string) {
	stream = strings.TrimPrefix(stream, "\ufeff")
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(stream, "\n")
	var data []string
	for _, line := range lines[:len(lines)-1] {
		if line == "" {
			if data != nil {
				all = append(all, strings.Join(data, "\n"))
			}
			data = nil
		}
		if name, value, _ := strings.Cut(line, ":"); name == "data" {
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	return all
}

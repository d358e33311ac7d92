package endpoint

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"

	"github.com/aeemesh/aeemesh/agents/model"
)

// Events reads server-sent events (WHATWG HTML, 9.2.6): lines that end with CR, LF or both, and an
// empty line after each event. It returns only the data of events, and skips their types, ids and
// comments. All other lines are kept for Stray.
type Events struct {
	lines *bufio.Scanner
	most  int64
	cr    bool // the last line ended with CR: an LF that follows belongs to it
	seen  int  // number of bytes already searched for the end of a line
	first bool // the first line has not been read; it may begin with a byte order mark
	data  []byte
	stray []byte
	err   error
}

// NewEvents returns a reader of the events of r. An event has at most most bytes, including the
// names of its fields.
func NewEvents(r io.Reader, most int64) *Events {
	e := &Events{lines: bufio.NewScanner(r), most: most, first: true}
	// One byte more for the end of the line, and one for the scanner, which fails as soon as its
	// buffer is full.
	e.lines.Buffer(nil, int(min(most, math.MaxInt32-2))+2)
	e.lines.Split(e.split)
	return e
}

// Data is [Events.Next] for a caller that knows whether the answer is complete. If it is, any end
// of the stream returns io.EOF; otherwise the error says that the stream broke off. Data removes
// white space around the data.
func (e *Events) Data(complete bool) ([]byte, error) {
	data, err := e.Next()
	switch {
	case err == nil:
		return bytes.TrimSpace(data), nil
	case complete:
		return nil, io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("the stream broke off: %w", err)
}

// Next returns the data of the next event that has any, its lines joined by LF. The data is valid
// until the next call. At the end of the stream the error is io.EOF, and an incomplete event is
// dropped. For an event that is too large the error is [model.ErrAnswerTooLarge]. After an error,
// later calls return the same error.
func (e *Events) Next() ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	e.data = e.data[:0]
	some := false
	for e.lines.Scan() {
		line := e.lines.Bytes()
		if e.first {
			line, e.first = bytes.TrimPrefix(line, []byte("\ufeff")), false
		}
		if len(line) == 0 {
			if some {
				return e.data, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "data":
		case "", "event", "id", "retry":
			continue
		default:
			if int64(len(e.stray)+len(line)) < e.most {
				e.stray = append(append(e.stray, line...), '\n')
			}
			continue
		}
		if some {
			e.data = append(e.data, '\n')
		}
		some = true
		e.data = append(e.data, bytes.TrimPrefix(value, []byte(" "))...)
		if int64(len(e.data)) > e.most {
			e.err = model.ErrAnswerTooLarge
			return nil, e.err
		}
	}
	switch e.err = e.lines.Err(); e.err {
	case nil:
		e.err = io.EOF
	case bufio.ErrTooLong:
		e.err = model.ErrAnswerTooLarge
	}
	return nil, e.err
}

// Stray returns the lines so far that are not fields of an event, up to the size limit of an event:
// some servers write an error as plain JSON into a stream. The result is valid until the next call
// of Next.
func (e *Events) Stray() []byte { return e.stray }

// split finds the next line. It drops text at the end of the stream that has no line end.
func (e *Events) split(data []byte, atEOF bool) (advance int, line []byte, err error) {
	start := 0
	if e.cr && len(data) > 0 {
		e.cr = false
		if data[0] == '\n' {
			start = 1
		}
	}
	end := bytes.IndexAny(data[start+e.seen:], "\r\n")
	switch {
	case end >= 0:
		end += start + e.seen
		e.seen, e.cr = 0, data[end] == '\r'
		return end + 1, data[start:end], nil
	case atEOF:
		return len(data), nil, nil
	}
	e.seen = len(data) - start
	return start, nil, nil
}

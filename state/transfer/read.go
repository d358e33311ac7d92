package transfer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/internal/rawdoc"
)

// An Init is the first message of a streaming handoff.
type Init struct {
	Token string
	// State is the document without its lists, its position and its x- members: which run
	// it is, and where it comes from.
	State *aaif.State
}

// Read reads a streaming handoff to its end and returns the document as canonical JSON, with its
// checksum and without a token. It verifies that the token was issued for this document, and that
// the document is a valid Agent State.
//
// accept is called with the first message, before any further message is processed (AAIF,
// Streaming Handoff Wire Format: "MUST verify the migration_token in the handoff_init
// message before processing subsequent messages"). It must verify the token
// ([VerifyToken]), that the token was not used before, and that the agent is known, and
// returns the grant, which Read compares with the document. If accept returns an
// error, Read returns that.
//
// Every other error has a class that [NewError] knows; a received handoff_error is
// a [*Error] with Remote set, and an error of r is wrapped. After an error no part
// of the document is returned.
func Read(r io.Reader, limits Limits, accept func(Init) (Grant, error)) ([]byte, Grant, error) {
	h := reader{in: bufio.NewReader(r), limits: limits.withDefaults(), accept: accept, lists: map[string][]jsontext.Value{}}
	for !h.complete {
		if err := h.next(); h.refused != nil {
			return nil, Grant{}, h.refused
		} else if err != nil {
			return nil, Grant{}, fmt.Errorf("read handoff: message %d: %w", h.seq, err)
		}
	}
	if _, err := h.in.ReadByte(); err == nil {
		return nil, Grant{}, fmt.Errorf("read handoff: %w: there is more after %s", ErrStream, msgComplete)
	} else if err != io.EOF {
		return nil, Grant{}, fmt.Errorf("read handoff: %w", err)
	}
	doc, err := h.assemble()
	if err != nil {
		return nil, Grant{}, fmt.Errorf("read handoff: %w", err)
	}
	return doc, h.grant, nil
}

type reader struct {
	in     *bufio.Reader
	limits Limits
	accept func(Init) (Grant, error)

	seq   int   // of the next message
	total int64 // bytes so far
	line  []byte

	head  []rawdoc.Member // of the document, from handoff_init
	grant Grant
	rest  []rawdoc.Member             // of the document, from pipeline_state
	lists map[string][]jsontext.Value // by member of the document

	partOf   string // the type of the value whose first parts were read, "" for none
	part     []byte
	complete bool
	checksum string // from handoff_complete
	refused  error  // of accept
}

// next reads one message.
func (h *reader) next() error {
	if h.seq >= h.limits.Messages {
		return fmt.Errorf("%w: more than %d messages", state.ErrTooLarge, h.limits.Messages)
	}
	line, err := h.readLine()
	if err != nil {
		return err
	}
	members, err := rawdoc.Object(bytes.Clone(line)) // line is overwritten by the next one
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStream, err)
	}
	m, err := readMessage(members)
	if err != nil {
		return err
	}
	if m.seq != strconv.Itoa(h.seq) {
		return fmt.Errorf("%w: seq is %.20s", ErrStream, m.seq)
	}
	if err := h.process(m); err != nil {
		return err
	}
	h.seq++
	return nil
}

// readLine reads up to the end of a line, or of the stream.
func (h *reader) readLine() ([]byte, error) {
	h.line = h.line[:0]
	for {
		piece, err := h.in.ReadSlice('\n')
		h.total += int64(len(piece))
		h.line = append(h.line, piece...)
		switch {
		case len(h.line) > h.limits.Line:
			return nil, fmt.Errorf("%w: a line of more than %d bytes", state.ErrTooLarge, h.limits.Line)
		case h.total > h.limits.Total:
			return nil, fmt.Errorf("%w: more than %d bytes", state.ErrTooLarge, h.limits.Total)
		case err == nil, err == io.EOF && len(h.line) > 0:
			return h.line, nil
		case err == io.EOF:
			return nil, fmt.Errorf("%w: it ends without %s: %w", ErrStream, msgComplete, io.ErrUnexpectedEOF)
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// A message is a parsed line.
type message struct {
	typ, seq string
	fields   map[string]jsontext.Value
}

func (m message) text(name string) (string, error) {
	v, ok := m.fields[name]
	if !ok {
		return "", fmt.Errorf("%w: %s has no %s", ErrStream, m.typ, name)
	}
	s, err := rawdoc.Text(v)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrStream, name, err)
	}
	return s, nil
}

// readMessage refuses members that the format does not have, except extensions, which
// begin with x-.
func readMessage(members []rawdoc.Member) (message, error) {
	m := message{fields: map[string]jsontext.Value{}}
	for _, f := range members {
		switch f.Name {
		case "type":
			var err error
			if m.typ, err = rawdoc.Text(f.Value); err != nil {
				return m, fmt.Errorf("%w: type: %w", ErrStream, err)
			}
		case "seq":
			m.seq = string(f.Value)
		default:
			m.fields[f.Name] = f.Value
		}
	}
	var known []string
	switch m.typ {
	case msgInit:
		known = []string{"migration_token", "state"}
	case msgContext, msgMemory, msgPipeline, msgTool, msgSubagent:
		known = []string{"value", "part", "more"}
	case msgComplete:
		known = []string{"checksum"}
	case msgError:
		known = []string{"code", "message"}
	default:
		return m, fmt.Errorf("%w: type %.40q", ErrStream, m.typ)
	}
	for name := range m.fields {
		if !slices.Contains(known, name) && (len(name) < 3 || name[:2] != "x-") {
			return m, fmt.Errorf("%w: %s has no member %.40q", ErrStream, m.typ, name)
		}
	}
	return m, nil
}

// process adds one message to the document and checks that it is in order.
func (h *reader) process(m message) error {
	switch {
	case m.typ == msgError:
		return h.failed(m)
	case m.typ == msgInit && h.seq == 0:
		return h.init(m)
	case m.typ == msgInit:
		return fmt.Errorf("%w: %s comes twice", ErrStream, msgInit)
	case h.seq == 0:
		return fmt.Errorf("%w: %s comes before %s", ErrStream, m.typ, msgInit)
	case h.partOf != "" && h.partOf != m.typ:
		return fmt.Errorf("%w: %s comes in the middle of a %s", ErrStream, m.typ, h.partOf)
	case m.typ == msgComplete:
		var err error
		h.checksum, err = m.text("checksum")
		h.complete = err == nil
		return err
	}
	return h.value(m)
}

// failed converts the other side's handoff_error into an error.
func (h *reader) failed(m message) error {
	code, err := m.text("code")
	if err != nil {
		return err
	}
	message, err := m.text("message")
	if err != nil {
		return err
	}
	return RemoteError(code, message)
}

// init processes handoff_init and has its token verified.
func (h *reader) init(m message) error {
	token, err := m.text("migration_token")
	if err != nil {
		return err
	}
	head := m.fields["state"]
	if h.head, err = rawdoc.Object(head); err != nil {
		return fmt.Errorf("%w: state: %w", ErrStream, err)
	}
	for _, f := range h.head {
		if inPipelineState(f.Name) {
			return fmt.Errorf("%w: state has a %.40q, which is for %s", ErrStream, f.Name, msgPipeline)
		}
	}
	for _, l := range lists {
		for _, f := range h.head {
			if items, err := rawdoc.Array(f.Value); f.Name == l.member && (err != nil || len(items) > 0) {
				return fmt.Errorf("%w: state.%s is no empty list: its items are for %s", ErrStream, l.member, l.typ)
			}
		}
	}
	p, err := rawdoc.ReadProvenance(h.head)
	if err != nil {
		return fmt.Errorf("%w: state: %w", ErrStream, err)
	}
	if p.Token != "" {
		return fmt.Errorf("%w: state has a second token", ErrStream)
	}
	doc, err := aaif.Parse(head, aaif.Options{Name: "handoff_init", Format: aaif.JSON, Kind: aaif.KindState, MaxDepth: rawdoc.MaxDepth})
	if err != nil {
		return fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	s := doc.State()
	if h.grant, err = h.accept(Init{Token: token, State: s}); err != nil {
		h.refused = err
		return err
	}
	return h.grant.Covers(p.Source, s.AgentID, s.RunID, s.StateID, h.grant.Checksum)
}

// value processes a value, or a part of one.
func (h *reader) value(m message) error {
	value, whole := m.fields["value"]
	if _, part := m.fields["part"]; part == whole {
		return fmt.Errorf("%w: %s wants either value or part", ErrStream, m.typ)
	}
	more := false
	switch v := m.fields["more"]; {
	case v == nil:
	case whole || v.Kind() != 't':
		return fmt.Errorf("%w: more is true, beside a part, or absent", ErrStream)
	default:
		more = true
	}
	switch {
	case whole && h.partOf != "":
		return fmt.Errorf("%w: a %s is not complete", ErrStream, h.partOf)
	case !whole:
		text, err := m.text("part")
		if err != nil {
			return err
		}
		h.part = append(h.part, text...)
		if h.partOf = m.typ; more {
			return nil
		}
		value, h.part, h.partOf = h.part, nil, ""
	}
	return h.element(m.typ, value)
}

// element adds a complete value to the document.
func (h *reader) element(typ string, value jsontext.Value) error {
	members, err := rawdoc.Object(value)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrStream, typ, err)
	}
	if typ != msgPipeline {
		list := listOf(typ)
		h.lists[list] = append(h.lists[list], value)
		return nil
	}
	for _, f := range members {
		if !inPipelineState(f.Name) {
			return fmt.Errorf("%w: %s has no %.40q", ErrStream, typ, f.Name)
		}
		if rawdoc.Index(h.rest, f.Name) >= 0 {
			return fmt.Errorf("%w: %.40q comes twice", ErrStream, f.Name)
		}
		h.rest = append(h.rest, f)
	}
	return nil
}

// assemble builds the document, and verifies its checksum and its schema.
func (h *reader) assemble() ([]byte, error) {
	for _, l := range lists {
		items := h.lists[l.member]
		if len(items) == 0 {
			continue
		}
		list := listOfItems(items)
		if i := rawdoc.Index(h.head, l.member); i >= 0 {
			h.head[i].Value = list
		} else {
			h.head = append(h.head, member(l.member, list))
		}
	}
	doc, sum, err := rawdoc.Canonical(rawdoc.Append(nil, append(h.head, h.rest...)), "checksum", "migration_token") // as state.ContentChecksum
	if err != nil {
		return nil, fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	if sum != h.checksum {
		return nil, fmt.Errorf("%w: %s says %.70q, and the state's is %s", state.ErrChecksum, msgComplete, h.checksum, sum)
	}
	if p, _ := rawdoc.ReadProvenance(h.head); p.Checksum != "" && p.Checksum != sum {
		return nil, fmt.Errorf("%w: provenance says %.70q, and it is %s", state.ErrChecksum, p.Checksum, sum)
	}
	if sum != h.grant.Checksum {
		return nil, fmt.Errorf("%w: its checksum is %.70q, the state's %s", ErrTokenState, h.grant.Checksum, sum)
	}
	if _, err := aaif.Parse(doc, aaif.Options{Name: "handoff", Format: aaif.JSON, Kind: aaif.KindState, MaxBytes: len(doc), MaxDepth: rawdoc.MaxDepth}); err != nil {
		return nil, fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	return doc, nil
}

// listOfItems writes an array.
func listOfItems(items []jsontext.Value) jsontext.Value {
	size := 1
	for _, v := range items {
		size += len(v) + 1
	}
	all := make([]byte, 0, size)
	for _, v := range items {
		all = append(append(all, ','), v...)
	}
	all[0] = '['
	return append(all, ']')
}

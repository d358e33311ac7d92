package state

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
)

// A HandoffInit is the first message of a streaming handoff.
type HandoffInit struct {
	Token string
	// State is the document without its lists, its position and its x- members: which run
	// it is, and where it comes from.
	State *aaif.State
}

// ReadHandoff reads a streaming handoff to its end and returns the document as JSON, with
// its checksum and without a token. It has verified that the token was issued for this
// document, and that the document is a valid Agent State.
//
// accept is called with the first message, before any further message is processed (AAIF,
// Streaming Handoff Wire Format: "MUST verify the migration_token in the handoff_init
// message before processing subsequent messages"). It must verify the token
// ([VerifyToken]), that the token was not used before, and that the agent is known, and
// returns the grant, which ReadHandoff compares with the document. If accept returns an
// error, ReadHandoff returns that.
//
// Every other error has a class that [NewHandoffError] knows; a received handoff_error is
// a [*HandoffError] with Remote set, and an error of r is wrapped. After an error no part
// of the document is returned.
func ReadHandoff(r io.Reader, limits HandoffLimits, accept func(HandoffInit) (Grant, error)) ([]byte, Grant, error) {
	h := handoffReader{in: bufio.NewReader(r), limits: limits.withDefaults(), accept: accept, lists: map[string][]jsontext.Value{}}
	for !h.complete {
		if err := h.next(); err != nil {
			return nil, Grant{}, fmt.Errorf("read handoff: message %d: %w", h.seq, err)
		}
	}
	if _, err := h.in.ReadByte(); err == nil {
		return nil, Grant{}, fmt.Errorf("read handoff: %w: there is more after %s", ErrHandoffInvalid, msgComplete)
	} else if err != io.EOF {
		return nil, Grant{}, fmt.Errorf("read handoff: %w", err)
	}
	doc, err := h.assemble()
	if err != nil {
		return nil, Grant{}, fmt.Errorf("read handoff: %w", err)
	}
	return doc, h.grant, nil
}

type handoffReader struct {
	in     *bufio.Reader
	limits HandoffLimits
	accept func(HandoffInit) (Grant, error)

	seq   int   // of the next message
	total int64 // bytes so far
	line  []byte

	head  []jsonMember // of the document, from handoff_init
	grant Grant
	rest  []jsonMember                // of the document, from pipeline_state
	lists map[string][]jsontext.Value // by member of the document

	partOf   string // the type of the value whose first parts were read, "" for none
	part     []byte
	complete bool
	checksum string // from handoff_complete
}

// next reads one message.
func (h *handoffReader) next() error {
	if h.seq >= h.limits.Messages {
		return fmt.Errorf("%w: more than %d messages", ErrTooLarge, h.limits.Messages)
	}
	line, err := h.readLine()
	if err != nil {
		return err
	}
	members, err := readObject(line)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrHandoffInvalid, err)
	}
	m, err := readMessage(members)
	if err != nil {
		return err
	}
	if m.seq != strconv.Itoa(h.seq) {
		return fmt.Errorf("%w: seq is %.20s", ErrHandoffInvalid, m.seq)
	}
	if err := h.message(m); err != nil {
		return err
	}
	h.seq++
	return nil
}

// readLine reads up to the end of a line, or of the stream.
func (h *handoffReader) readLine() ([]byte, error) {
	h.line = h.line[:0]
	for {
		piece, err := h.in.ReadSlice('\n')
		h.total += int64(len(piece))
		h.line = append(h.line, piece...)
		switch {
		case len(h.line) > h.limits.Line:
			return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrTooLarge, h.limits.Line)
		case h.total > h.limits.Total:
			return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, h.limits.Total)
		case err == nil, err == io.EOF && len(h.line) > 0:
			return h.line, nil
		case err == io.EOF:
			return nil, fmt.Errorf("%w: it ends without %s: %w", ErrHandoffInvalid, msgComplete, io.ErrUnexpectedEOF)
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// A handoffMessage is a parsed line.
type handoffMessage struct {
	typ, seq string
	fields   map[string]jsontext.Value
}

func (m handoffMessage) text(name string) (string, error) {
	v, ok := m.fields[name]
	if !ok {
		return "", fmt.Errorf("%w: %s has no %s", ErrHandoffInvalid, m.typ, name)
	}
	s, err := readText(v)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrHandoffInvalid, name, err)
	}
	return s, nil
}

// readMessage refuses members that the format does not have, except extensions, which
// begin with x-.
func readMessage(members []jsonMember) (handoffMessage, error) {
	m := handoffMessage{fields: map[string]jsontext.Value{}}
	for _, f := range members {
		switch f.name {
		case "type":
			var err error
			if m.typ, err = readText(f.value); err != nil {
				return m, fmt.Errorf("%w: type: %w", ErrHandoffInvalid, err)
			}
		case "seq":
			m.seq = string(f.value)
		default:
			m.fields[f.name] = f.value
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
		return m, fmt.Errorf("%w: type %.40q", ErrHandoffInvalid, m.typ)
	}
	for name := range m.fields {
		if !slices.Contains(known, name) && (len(name) < 3 || name[:2] != "x-") {
			return m, fmt.Errorf("%w: %s has no member %.40q", ErrHandoffInvalid, m.typ, name)
		}
	}
	return m, nil
}

// message processes one message and checks that it is in order.
func (h *handoffReader) message(m handoffMessage) error {
	switch {
	case m.typ == msgError:
		return h.failed(m)
	case m.typ == msgInit && h.seq == 0:
		return h.init(m)
	case m.typ == msgInit:
		return fmt.Errorf("%w: %s comes twice", ErrHandoffInvalid, msgInit)
	case h.seq == 0:
		return fmt.Errorf("%w: %s comes before %s", ErrHandoffInvalid, m.typ, msgInit)
	case h.partOf != "" && h.partOf != m.typ:
		return fmt.Errorf("%w: %s comes in the middle of a %s", ErrHandoffInvalid, m.typ, h.partOf)
	case m.typ == msgComplete:
		var err error
		h.checksum, err = m.text("checksum")
		h.complete = err == nil
		return err
	}
	return h.value(m)
}

// failed converts the other side's handoff_error into an error.
func (h *handoffReader) failed(m handoffMessage) error {
	code, err := m.text("code")
	if err != nil {
		return err
	}
	message, err := m.text("message")
	if err != nil {
		return err
	}
	return RemoteHandoffError(code, message)
}

// init processes handoff_init and has its token verified.
func (h *handoffReader) init(m handoffMessage) error {
	token, err := m.text("migration_token")
	if err != nil {
		return err
	}
	state := m.fields["state"]
	if h.head, err = readObject(state); err != nil {
		return fmt.Errorf("%w: state: %w", ErrHandoffInvalid, err)
	}
	for _, f := range h.head {
		if inPipelineState(f.name) {
			return fmt.Errorf("%w: state has a %.40q, which is for %s", ErrHandoffInvalid, f.name, msgPipeline)
		}
	}
	for _, l := range handoffLists {
		for _, f := range h.head {
			if items, err := readArray(f.value); f.name == l.member && (err != nil || len(items) > 0) {
				return fmt.Errorf("%w: state.%s is no empty list: its items are for %s", ErrHandoffInvalid, l.member, l.typ)
			}
		}
	}
	p, err := readProvenance(h.head)
	if err != nil {
		return fmt.Errorf("%w: state: %w", ErrHandoffInvalid, err)
	}
	if p.token != "" {
		return fmt.Errorf("%w: state has a second token", ErrHandoffInvalid)
	}
	doc, err := aaif.Parse(state, aaif.Options{Name: "handoff_init", Format: aaif.JSON, Kind: aaif.KindState, MaxDepth: maxDepth})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	s := doc.State()
	if h.grant, err = h.accept(HandoffInit{Token: token, State: s}); err != nil {
		return err
	}
	return h.grant.Covers(p.source, s.AgentID, s.RunID, s.StateID, h.grant.Checksum)
}

// value processes a value, or a part of one.
func (h *handoffReader) value(m handoffMessage) error {
	value, whole := m.fields["value"]
	if _, part := m.fields["part"]; part == whole {
		return fmt.Errorf("%w: %s wants either value or part", ErrHandoffInvalid, m.typ)
	}
	more := false
	switch v := m.fields["more"]; {
	case v == nil:
	case whole || v.Kind() != 't':
		return fmt.Errorf("%w: more is true, beside a part, or absent", ErrHandoffInvalid)
	default:
		more = true
	}
	switch {
	case whole && h.partOf != "":
		return fmt.Errorf("%w: a %s is not complete", ErrHandoffInvalid, h.partOf)
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
func (h *handoffReader) element(typ string, value jsontext.Value) error {
	members, err := readObject(value)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrHandoffInvalid, typ, err)
	}
	if typ != msgPipeline {
		list := handoffList(typ)
		h.lists[list] = append(h.lists[list], value)
		return nil
	}
	for _, f := range members {
		if !inPipelineState(f.name) {
			return fmt.Errorf("%w: %s has no %.40q", ErrHandoffInvalid, typ, f.name)
		}
		if indexMember(h.rest, f.name) >= 0 {
			return fmt.Errorf("%w: %.40q comes twice", ErrHandoffInvalid, f.name)
		}
		h.rest = append(h.rest, f)
	}
	return nil
}

// assemble builds the document, and verifies its checksum and its schema.
func (h *handoffReader) assemble() ([]byte, error) {
	for _, l := range handoffLists {
		items := h.lists[l.member]
		if len(items) == 0 {
			continue
		}
		list := jsontext.Value("[" + string(bytes.Join(raw(items), []byte(","))) + "]")
		if i := indexMember(h.head, l.member); i >= 0 {
			h.head[i].value = list
		} else {
			h.head = append(h.head, jsonMember{l.member, list})
		}
	}
	doc := appendObject(nil, append(h.head, h.rest...))
	sum, err := ContentChecksum(doc)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if sum != h.checksum {
		return nil, fmt.Errorf("%w: %s says %.70q, and the state's is %s", ErrChecksum, msgComplete, h.checksum, sum)
	}
	if p, _ := readProvenance(h.head); p.checksum != "" && p.checksum != sum {
		return nil, fmt.Errorf("%w: provenance says %.70q, and it is %s", ErrChecksum, p.checksum, sum)
	}
	if sum != h.grant.Checksum {
		return nil, fmt.Errorf("%w: its checksum is %.70q, the state's %s", ErrTokenState, h.grant.Checksum, sum)
	}
	if _, err := aaif.Parse(doc, aaif.Options{Name: "handoff", Format: aaif.JSON, Kind: aaif.KindState, MaxBytes: len(doc), MaxDepth: maxDepth}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return doc, nil
}

func raw(values []jsontext.Value) [][]byte {
	all := make([][]byte, len(values))
	for i, v := range values {
		all[i] = v
	}
	return all
}

func indexMember(members []jsonMember, name string) int {
	return slices.IndexFunc(members, func(m jsonMember) bool { return m.name == name })
}

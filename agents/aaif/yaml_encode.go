package aaif

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// encodeYAML writes JSON as block YAML, members in order, numbers as they are.
// Texts of several lines become literal blocks, so that instructions stay
// readable; other texts are written without quotes only if a reader of any YAML
// version takes them for text.
func encodeYAML(text jsontext.Value) ([]byte, error) {
	e := yamlEncoder{dec: jsontext.NewDecoder(bytes.NewBuffer(text))}
	if err := e.value(0, ""); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	return e.out.Bytes(), nil
}

type yamlEncoder struct {
	dec *jsontext.Decoder
	out bytes.Buffer
}

const yamlIndent = "  "

// value writes the next value. lead is the text before it on the line; nested
// blocks are indented by depth.
func (e *yamlEncoder) value(depth int, lead string) error {
	tok, err := e.dec.ReadToken()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	switch tok.Kind() {
	case '{':
		return e.members(depth, lead)
	case '[':
		return e.items(depth, lead)
	case '"':
		e.out.WriteString(pad(lead))
		e.str(tok.String(), depth)
	default:
		e.out.WriteString(pad(lead))
		e.out.WriteString(tok.String())
	}
	e.out.WriteByte('\n')
	return nil
}

// pad puts a space after a lead.
func pad(lead string) string {
	if lead == "" {
		return ""
	}
	return lead + " "
}

func (e *yamlEncoder) members(depth int, lead string) error {
	if e.dec.PeekKind() == '}' {
		e.out.WriteString(pad(lead) + "{}\n")
		_, err := e.dec.ReadToken()
		return err
	}
	// The first member of an item is on the item's own line.
	first := lead
	if lead != "-" {
		if lead != "" {
			e.out.WriteString(lead + "\n")
		}
		first = ""
	}
	for e.dec.PeekKind() != '}' {
		tok, err := e.dec.ReadToken()
		if err != nil {
			return err
		}
		if first != "" {
			e.out.WriteString(first + " ")
			first = ""
		} else {
			e.out.WriteString(strings.Repeat(yamlIndent, depth))
		}
		e.out.WriteString(scalarText(tok.String()))
		if err := e.value(depth+1, ":"); err != nil {
			return err
		}
	}
	_, err := e.dec.ReadToken()
	return err
}

func (e *yamlEncoder) items(depth int, lead string) error {
	if e.dec.PeekKind() == ']' {
		e.out.WriteString(pad(lead) + "[]\n")
		_, err := e.dec.ReadToken()
		return err
	}
	if lead != "" {
		e.out.WriteString(lead + "\n")
	}
	for e.dec.PeekKind() != ']' {
		e.out.WriteString(strings.Repeat(yamlIndent, depth))
		if err := e.value(depth+1, "-"); err != nil {
			return err
		}
	}
	_, err := e.dec.ReadToken()
	return err
}

// str writes a text: as a literal block if that is easier to read, else on one
// line.
func (e *yamlEncoder) str(s string, depth int) {
	if !literalBlock(s) || depth == 0 {
		e.out.WriteString(scalarText(s))
		return
	}
	body, chomp := strings.CutSuffix(s, "\n")
	e.out.WriteByte('|')
	if !chomp {
		e.out.WriteByte('-')
	}
	for line := range strings.SplitSeq(body, "\n") {
		e.out.WriteByte('\n')
		if line != "" {
			e.out.WriteString(strings.Repeat(yamlIndent, depth))
			e.out.WriteString(line)
		}
	}
}

// literalBlock reports whether a text can be written as a literal block without
// ambiguity about its white space.
func literalBlock(s string) bool {
	body := strings.TrimSuffix(s, "\n")
	if !strings.Contains(body, "\n") {
		return false
	}
	for line := range strings.SplitSeq(body, "\n") {
		if strings.TrimRight(line, " \t") != line || strings.HasPrefix(line, "\t") {
			return false
		}
	}
	if body[0] == ' ' || body[0] == '\n' || strings.HasSuffix(body, "\n") {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}

var plainText = pattern.Of(`^[A-Za-z][A-Za-z0-9_./$-]*(?:(?:, ?| )[A-Za-z0-9_./$()'-]+)*$`)

// scalarText writes a text on one line, in quotes unless they are certainly not
// needed.
func scalarText(s string) string {
	if plainText.RE().MatchString(s) && !yamlWord(s) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == ' ' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// yamlWord reports whether some version of YAML does not take a word for text.
func yamlWord(s string) bool {
	switch strings.ToLower(s) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n":
		return true
	}
	return false
}

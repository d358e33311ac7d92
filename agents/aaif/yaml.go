package aaif

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// YAML documents are read as a notation for JSON. The parser supplies a syntax
// tree. This package decides which plain scalars are numbers, bools or null, by
// YAML 1.2's JSON rules, so that a document means the same in both notations:
// 2025-01-01, no, on and 3.4.0 are strings.

// maxYAMLColumn bounds the columns of structure tokens, and with them how deep
// blocks can nest before the exact limit is checked on the tree: the children
// of a block are indented further than the block.
const maxYAMLColumn = 1000

// maxYAMLMembers bounds the members of all objects of a YAML document. The
// parser recurses over the members of a block mapping and copies the remaining
// ones at each. Documents of that size are written by machines, which should
// write JSON.
const maxYAMLMembers = 10_000

// maxYAMLIndicators bounds the characters that can start or end a token, and
// with them the tokens: the scanner needs about a hundred bytes of memory for
// each token. In prose about one character in ten is such a character.
const maxYAMLIndicators = 128 << 10

// yamlIndicators are those characters.
const yamlIndicators = "[]{},:-?&*!|>'\"#%@`\n"

// unixLines turns every line break into a line feed, which means the same (YAML 1.2, section 5.4).
// The scanner counts CR LF in quotes and after comments as two line breaks.
var unixLines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// decodeYAML converts YAML to JSON text, with members in the order of the
// source. If positions is not nil, decodeYAML adds the position of every value,
// by pointer.
func decodeYAML(data []byte, maxDepth int, positions map[string]position) (text jsontext.Value, problem *Problem) {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		p := errorf("", RuleSyntax, "the text starts with a byte order mark").hint("save it as UTF-8 without one")
		return nil, &p
	}
	if !utf8.Valid(data) {
		p := errorf("", RuleEncoding, "the text is not UTF-8")
		p.Line, p.Column = lineColumn(data, invalidUTF8(data))
		return nil, &p
	}
	indicators := 0
	for i, c := range data {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
			p := errorf("", RuleYAML, "U+%04X is a control character, which neither YAML nor JSON has in a text", c).hint(`write it as an escape in double quotes: "\x%02x"`, c)
			p.Line, p.Column = lineColumn(data, i)
			return nil, &p
		}
		if strings.IndexByte(yamlIndicators, c) >= 0 {
			indicators++
		}
	}
	if indicators > maxYAMLIndicators {
		p := errorf("", RuleTooLarge, "too much structure for a YAML document").hint("send it as JSON")
		return nil, &p
	}
	defer func() {
		// The parser is a third party's, and the text may be hostile.
		if r := recover(); r != nil {
			p := errorf("", RuleSyntax, "not YAML: the parser failed")
			text, problem = nil, &p
		}
	}()

	tokens := lexer.Tokenize(unixLines.Replace(string(data)))
	if p := checkYAMLTokens(tokens, maxDepth); p != nil {
		return nil, p
	}
	// Duplicate names are found below, in linear time.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, yamlProblem(err)
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			p := yamlErrorf(doc.Body.GetToken(), "", RuleYAML, "a second document begins here").hint("one file holds one document")
			return nil, &p
		}
		body = doc.Body
	}
	if body == nil {
		p := errorf("", RuleSyntax, "the document is empty")
		return nil, &p
	}
	var out bytes.Buffer
	c := yamlConverter{enc: jsontext.NewEncoder(&out), maxDepth: maxDepth, positions: positions}
	if p := c.value(body, body.GetToken(), "", 1); p != nil {
		return nil, p
	}
	return jsontext.Value(bytes.TrimRight(out.Bytes(), "\n")), nil
}

// checkYAMLTokens refuses, before a tree is built, everything that JSON cannot
// express, and nesting that could exhaust the parser's stack.
func checkYAMLTokens(tokens token.Tokens, maxDepth int) *Problem {
	depth, members, content := 0, 0, false
	refuse := func(tk *token.Token, what, hint string) *Problem {
		p := yamlErrorf(tk, "", RuleYAML, "%s", what).hint("%s", hint)
		return &p
	}
	for _, tk := range tokens {
		content = content || tk.Type != token.DocumentHeaderType && tk.Type != token.CommentType
		switch tk.Type {
		case token.AnchorType, token.AliasType:
			return refuse(tk, "anchors and aliases are not accepted", "write the value out, or quote the text if it only looks like one")
		case token.MergeKeyType:
			return refuse(tk, "merge keys are not accepted", "write the members out")
		case token.TagType:
			return refuse(tk, "tags are not accepted", `a string is a string when it is quoted; "!" itself needs quotes too`)
		case token.DirectiveType:
			return refuse(tk, "directives are not accepted", "delete the line")
		case token.MappingKeyType:
			return refuse(tk, `"? " keys are not accepted`, "write key: value")
		case token.DocumentHeaderType:
			if content {
				return refuse(tk, "a second document begins here", "one file holds one document")
			}
			content = true
		case token.MappingStartType, token.SequenceStartType:
			if depth++; depth > maxDepth {
				p := yamlErrorf(tk, "", RuleTooDeep, "%s", tooDeep(maxDepth).message)
				return &p
			}
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.SequenceEntryType, token.MappingValueType:
			at := tk
			if tk.Type == token.MappingValueType {
				if members++; members > maxYAMLMembers {
					p := yamlErrorf(tk, "", RuleTooLarge, "more than %d members in a YAML document", maxYAMLMembers).hint("send it as JSON")
					return &p
				}
				if tk.Prev != nil {
					at = tk.Prev // the key
				}
			}
			if depth == 0 && at.Position.Column > maxYAMLColumn {
				p := yamlErrorf(tk, "", RuleTooDeep, "%s", tooDeep(maxDepth).message)
				return &p
			}
		}
	}
	return nil
}

// A yamlConverter writes a syntax tree as JSON.
type yamlConverter struct {
	enc       *jsontext.Encoder
	maxDepth  int
	positions map[string]position
}

// value writes one node. at is the token at which a reader would look for the
// value.
func (c *yamlConverter) value(node ast.Node, at *token.Token, pointer string, depth int) *Problem {
	if c.positions != nil && at != nil && at.Position != nil {
		c.positions[pointer] = position{at.Position.Line, at.Position.Column}
	}
	switch n := node.(type) {
	case *ast.MappingNode:
		return c.mapping(n.Values, at, pointer, depth)
	case *ast.MappingValueNode:
		return c.mapping([]*ast.MappingValueNode{n}, at, pointer, depth)
	case *ast.SequenceNode:
		return c.sequence(n, at, pointer, depth)
	case *ast.LiteralNode:
		return c.write(jsontext.String(n.Value.Value), at, pointer)
	case nil:
		return c.write(jsontext.Null, at, pointer)
	case ast.ScalarNode:
		return c.scalar(n, at, pointer)
	}
	p := yamlErrorf(at, pointer, RuleYAML, "this has no counterpart in JSON")
	return &p
}

func (c *yamlConverter) mapping(members []*ast.MappingValueNode, at *token.Token, pointer string, depth int) *Problem {
	if depth > c.maxDepth {
		p := yamlErrorf(at, pointer, RuleTooDeep, "%s", tooDeep(c.maxDepth).message)
		return &p
	}
	if p := c.write(jsontext.BeginObject, at, pointer); p != nil {
		return p
	}
	seen := make(map[string]bool, len(members))
	for _, m := range members {
		keyToken := m.Key.GetToken()
		if p := tabLost(keyToken, pointer); p != nil {
			return p
		}
		key, ok := yamlKey(m.Key)
		if !ok {
			p := yamlErrorf(keyToken, pointer, RuleYAML, "a name has to be a string").hint("quote it")
			return &p
		}
		at := child(pointer, key)
		if seen[key] {
			p := yamlErrorf(keyToken, at, RuleDuplicateName, "this name is in the object twice")
			return &p
		}
		seen[key] = true
		if p := c.write(jsontext.String(key), keyToken, at); p != nil {
			return p
		}
		if p := c.value(m.Value, keyToken, at, depth+1); p != nil {
			return p
		}
	}
	return c.write(jsontext.EndObject, at, pointer)
}

// yamlKey returns the text of a key that is a string: quoted, or plain and not
// a number, bool or null.
func yamlKey(key ast.MapKeyNode) (string, bool) {
	n, ok := key.(*ast.StringNode)
	if !ok {
		return "", false
	}
	if quoted(n.Token) {
		return n.Value, true
	}
	return n.Value, plainKind(n.Value) == plainString
}

func (c *yamlConverter) sequence(n *ast.SequenceNode, at *token.Token, pointer string, depth int) *Problem {
	if depth > c.maxDepth {
		p := yamlErrorf(at, pointer, RuleTooDeep, "%s", tooDeep(c.maxDepth).message)
		return &p
	}
	if p := c.write(jsontext.BeginArray, at, pointer); p != nil {
		return p
	}
	for i, item := range n.Values {
		at := at
		if item != nil && item.GetToken() != nil {
			at = item.GetToken()
			if m, ok := item.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle {
				at = m.Values[0].Key.GetToken()
			}
		}
		if p := c.value(item, at, child(pointer, i), depth+1); p != nil {
			return p
		}
	}
	return c.write(jsontext.EndArray, at, pointer)
}

func (c *yamlConverter) write(t jsontext.Token, at *token.Token, pointer string) *Problem {
	if err := c.enc.WriteToken(t); err != nil {
		p := yamlErrorf(at, pointer, RuleSyntax, "no JSON for this: %v", err)
		return &p
	}
	return nil
}

// yamlProblem converts a parser's error to a problem, without its excerpt of
// the source.
func yamlProblem(err error) *Problem {
	var y yaml.Error
	if errors.As(err, &y) {
		p := yamlErrorf(y.GetToken(), "", RuleSyntax, "not YAML: %s", clip.Text(y.GetMessage(), 60))
		if strings.ContainsRune(p.Message, '\t') {
			p = yamlErrorf(y.GetToken(), "", RuleSyntax, "not YAML: a tab").hint("indent with spaces")
		}
		if strings.HasSuffix(p.Message, "' must be specified") { // "',' or '}'": a value within braces or brackets goes on after its end
			p = p.hint(`put a text with a brace or a bracket in quotes, such as "https://a.example/{id}"`)
		}
		return &p
	}
	p := errorf("", RuleSyntax, "not YAML")
	return &p
}

func yamlErrorf(at *token.Token, pointer string, rule Rule, format string, args ...any) Problem {
	p := errorf(pointer, rule, format, args...)
	if at != nil && at.Position != nil {
		p.Line, p.Column = at.Position.Line, max(at.Position.Column, 1)
	}
	return p
}

package mcp

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/agents/tool"
)

// maxErrorText bounds a server's text about a failure, in bytes.
const maxErrorText = 4 << 10

// block is a part of a result, as the model sees it. Binary content is
// described, not shown.
type block struct {
	Type        string `json:"type"`
	Text        string `json:"text,omitempty"`
	URI         string `json:"uri,omitempty"`
	Name        string `json:"name,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	MIMEType    string `json:"mime_type,omitempty"`
	Bytes       int    `json:"bytes,omitempty"`
	SHA256      string `json:"sha256,omitempty"`
}

// resultOf converts a server's result to JSON for the model:
//   - structured content unchanged; within {"structured_content", "content"} if
//     there is other content than text, and no schema forbids it;
//   - one text: its JSON if it is a JSON object or array, otherwise a string;
//   - several texts: one string, with newlines between them;
//   - anything else: {"content": […]}, where images and other bytes are described.
//
// An error result becomes a *tool.Error with the server's text, or, if it has none, with its other
// content as JSON.
func (c *Config) resultOf(r *sdk.CallToolResult, hasSchema bool) (json.RawMessage, error) {
	texts, blocks, allText := contents(r.Content)
	if r.IsError {
		why := strings.TrimSpace(strings.Join(texts, "\n"))
		if structured, ok := structured(r); ok && why == "" {
			why = string(structured)
		} else if len(blocks) > len(texts) && why == "" {
			why = string(encode(blocks))
		}
		words := cmp.Or(c.shortened(why, maxErrorText), "the tool says that it failed, and not why")
		return nil, &tool.Error{Kind: tool.ErrFailed, Message: words}
	}
	if busy(r) {
		return nil, &tool.Error{Kind: tool.ErrUnavailable, Message: "the MCP server has too much to do; try again later"}
	}
	if r.NeedsInput() {
		return nil, &tool.Error{Kind: tool.ErrFailed, Message: "the tool asks for input from a person, and no person can be asked here"}
	}
	if structured, ok := structured(r); ok {
		if allText || hasSchema {
			return structured, nil
		}
		var bytes []block
		for _, b := range blocks {
			if b.Type != "text" {
				bytes = append(bytes, b)
			}
		}
		return encode(map[string]any{"structured_content": structured, "content": bytes}), nil
	}
	switch {
	case len(texts) == 0 && allText:
		return json.RawMessage("null"), nil
	case len(texts) == 1 && allText:
		if text := strings.TrimSpace(texts[0]); text != "" && (text[0] == '{' || text[0] == '[') && json.Valid([]byte(text)) {
			return json.RawMessage(text), nil
		}
		return encode(texts[0]), nil
	case allText:
		return encode(strings.Join(texts, "\n")), nil
	}
	return encode(map[string]any{"content": blocks}), nil
}

// structured returns a result's structured content, with exact numbers if they
// are known.
func structured(r *sdk.CallToolResult) (json.RawMessage, bool) {
	if r.StructuredContent == nil {
		return nil, false
	}
	if exact, ok := r.Meta[exactKey].(string); ok && json.Valid([]byte(exact)) {
		return json.RawMessage(exact), true
	}
	return encode(r.StructuredContent), true
}

// contents converts the parts of a result, and returns the texts among them.
func contents(parts []sdk.Content) (texts []string, blocks []block, allText bool) {
	allText = true
	for _, part := range parts {
		b := describe(part)
		blocks = append(blocks, b)
		if b.Type == "text" {
			texts = append(texts, b.Text)
		} else {
			allText = false
		}
	}
	return texts, blocks, allText
}

func describe(part sdk.Content) block {
	switch p := part.(type) {
	case *sdk.TextContent:
		return block{Type: "text", Text: p.Text}
	case *sdk.ImageContent:
		return described(block{Type: "image", MIMEType: p.MIMEType}, p.Data)
	case *sdk.AudioContent:
		return described(block{Type: "audio", MIMEType: p.MIMEType}, p.Data)
	case *sdk.ResourceLink:
		b := block{Type: "resource_link", URI: p.URI, Name: p.Name, Title: p.Title, Description: p.Description, MIMEType: p.MIMEType}
		if p.Size != nil {
			b.Bytes = int(max(0, *p.Size))
		}
		return b
	case *sdk.EmbeddedResource:
		if p.Resource == nil {
			return block{Type: "resource"}
		}
		b := block{Type: "resource", URI: p.Resource.URI, MIMEType: p.Resource.MIMEType, Text: p.Resource.Text}
		if len(p.Resource.Blob) > 0 {
			return described(b, p.Resource.Blob)
		}
		return b
	}
	return block{Type: "unknown"}
}

// described describes binary content by its size and type.
func described(b block, data []byte) block {
	sum := sha256.Sum256(data)
	b.Bytes, b.SHA256 = len(data), hex.EncodeToString(sum[:])
	return b
}

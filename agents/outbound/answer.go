package outbound

import (
	"bytes"
	"encoding/json"
	"mime"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/envelope"
)

// maxWords bounds an endpoint's own text about a failure, in characters.
const maxWords = 500

// Answer is the answer of an endpoint.
type Answer struct {
	Status int
	Type   string // its Content-Type
	Body   []byte // at most as large as the client allows

	secrets *secret.Redactor // of the credentials that were read
}

// JSON converts the answer to the result of a tool: JSON unchanged; a text to
// {"text": …, "content_type": …}; an empty body to {"status": 204}; anything
// else to {"content_type": …, "bytes": …}, without the bytes. Credentials that
// were read are removed. Invalid JSON with a JSON content type is a [*Failure].
func (a *Answer) JSON() (json.RawMessage, error) {
	body := a.trimmed()
	kind, params, err := mime.ParseMediaType(a.Type)
	switch {
	case len(body) == 0:
		return envelope.EncodeJSON(map[string]any{"status": a.Status})
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		if !json.Valid(body) || !utf8.Valid(body) {
			return nil, &Failure{Reason: ReasonBroken, Status: a.Status, Message: "the answer says that it is JSON, and is not"}
		}
		return a.secrets.JSON(body), nil
	case (kind == "" || kind == "text/plain") && (body[0] == '{' || body[0] == '[') && json.Valid(body):
		return a.secrets.JSON(body), nil // the form of many servers
	case isText(kind) || (err != nil || kind == "") && utf8.Valid(body):
		return envelope.EncodeJSON(map[string]any{"text": a.secrets.Scrub(decodeText(a.Body, params["charset"])), "content_type": kind})
	}
	return envelope.EncodeJSON(map[string]any{"content_type": kind, "bytes": len(a.Body)})
}

// trimmed returns the body without white space around it and without a byte order mark, which a
// reader of JSON may ignore (RFC 8259, section 8.1).
func (a *Answer) trimmed() []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(a.Body, []byte("\ufeff")))
}

// words returns an endpoint's text about a failure, for a model: the usual
// members of JSON, or a plain text, in one line.
func (a *Answer) words() string {
	kind, params, _ := mime.ParseMediaType(a.Type)
	var text string
	switch {
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		var v any
		if json.Unmarshal(a.trimmed(), &v) == nil {
			text = failureText(v, 3)
		}
	case kind == "text/plain":
		text = decodeText(a.Body, params["charset"])
	}
	runes := []rune(a.secrets.Scrub(oneLine(a.secrets.Scrub(text)))) // joining lines may join the parts of a secret
	if len(runes) > maxWords {
		return string(runes[:maxWords]) + "…"
	}
	return string(runes)
}

// failureText finds the text in an object that reports a failure: RFC 9457's detail
// and title, and other common members.
func failureText(v any, depth int) string {
	if s, ok := v.(string); ok {
		return s
	}
	if list, ok := v.([]any); ok && len(list) > 0 && depth > 0 {
		return failureText(list[0], depth-1)
	}
	object, ok := v.(map[string]any)
	if !ok || depth == 0 {
		return ""
	}
	for _, name := range []string{"detail", "message", "msg", "error_description", "title", "error", "errors", "description", "reason", "code"} {
		if s := failureText(object[name], depth-1); s != "" {
			return s
		}
	}
	return ""
}

// oneLine joins a peer's text into one line, and removes characters that are not printable.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return strings.Join(strings.Fields(text), " ")
}

// isText reports whether a media type is text that a model can read.
func isText(kind string) bool {
	if strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+xml") || strings.HasSuffix(kind, "+yaml") {
		return true
	}
	switch kind {
	case "application/xml", "application/yaml", "application/x-yaml", "application/x-ndjson", "application/jsonl",
		"application/x-www-form-urlencoded", "application/javascript", "application/toml", "application/graphql", "application/sql":
		return true
	}
	return false
}

// windows1252 has the characters of the bytes 0x80 to 0x9F; all others equal Unicode's. The table
// of golang.org/x/text would add 100 KB to the program.
var windows1252 = []rune("€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008DŽ\u008F\u0090‘’“”•–—˜™š›œ\u009DžŸ")

// decodeText converts a text to UTF-8. The only other supported charset is
// windows-1252; what is declared as Latin-1 is read as such, as browsers do.
func decodeText(body []byte, charset string) string {
	switch strings.ToLower(charset) {
	case "iso-8859-1", "latin1", "windows-1252":
		if !utf8.Valid(body) {
			runes := make([]rune, len(body))
			for i, b := range body {
				runes[i] = rune(b)
				if b >= 0x80 && b < 0xA0 {
					runes[i] = windows1252[b-0x80]
				}
			}
			return string(runes)
		}
	}
	return strings.ToValidUTF8(string(body), "\uFFFD")
}

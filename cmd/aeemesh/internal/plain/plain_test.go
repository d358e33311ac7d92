package plain_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
)

// unfit is everything that a terminal obeys or does not show.
const unfit = "\x00\x07\x08\r\x1b\x7f\u0080\u009b\u009f\u00ad\u034f\u061c\u115f\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2064\u2066\u2067\u2068\u2069\u3164\ufeff\U000e0001\U000e0041"

func TestTextThatCommandsATerminalIsReplaced(t *testing.T) {
	t.Parallel()
	for _, r := range unfit {
		if got := plain.Text("a" + string(r) + "b"); got != "a\uFFFDb" {
			t.Errorf("%U: %q", r, got)
		}
		if got := plain.Line("a\n" + string(r) + "\tb"); got != "a \uFFFD b" {
			t.Errorf("%U on a line: %q", r, got)
		}
	}
	if got := plain.Text("a\x9b31m\xff"); got != "a\uFFFD31m\uFFFD" {
		t.Errorf("bytes that are no UTF-8: %q", got)
	}
	for _, same := range []string{"", "plain", "two\nlines\tand a tab", "Grüße, ελληνικά, 日本語\u3000", "👩\u200d💻 👍🏽 ❤\ufe0f", "می\u200cخواهم", "क्\u200dष", "\u0600١٢", "\uFFFD"} {
		if got := plain.Text(same); got != same {
			t.Errorf("%q became %q", same, got)
		}
	}
}

// Finding 22 of the security review: what is escaped is still the same JSON.
func TestJSONIsEscapedAndMeansTheSame(t *testing.T) {
	t.Parallel()
	for _, r := range unfit {
		if r < ' ' {
			continue // cannot stand in JSON
		}
		raw, err := json.Marshal(map[string]string{"k" + string(r): "v" + string(r)})
		if err != nil {
			t.Fatal(err)
		}
		raw = []byte(strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(string(raw))) // as others write it
		got := plain.JSON(raw)
		if strings.ContainsRune(string(got), r) {
			t.Errorf("%U: %s", r, got)
		}
		var was, is map[string]string
		if json.Unmarshal(raw, &was) != nil || json.Unmarshal(got, &is) != nil || len(is) != 1 || was["k"+string(r)] != is["k"+string(r)] {
			t.Errorf("%U: %s became %s", r, raw, got)
		}
	}
	if got := string(plain.JSON([]byte("{\"a\":1,\r\"b\":\"ü👩\u200d💻\"}"))); got != "{\"a\":1, \"b\":\"ü👩\u200d💻\"}" {
		t.Errorf("got %s", got)
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("hello")
	f.Add(unfit)
	f.Add("{\"a\":\"\u009b\"}")
	f.Fuzz(func(t *testing.T, s string) {
		text := plain.Text(s)
		if !utf8.ValidString(text) || plain.Text(text) != text || utf8.RuneCountInString(text) != utf8.RuneCountInString(s) {
			t.Errorf("%q became %q", s, text)
		}
		for _, r := range text {
			if r < ' ' && r != '\n' && r != '\t' || r >= 0x7F && r < 0xA0 || r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 {
				t.Errorf("%q has %U", text, r)
			}
		}
		raw := []byte(s)
		if !json.Valid(raw) || !utf8.Valid(raw) {
			return
		}
		var was, is any
		if json.Unmarshal(raw, &was) != nil {
			return
		}
		if err := json.Unmarshal(plain.JSON(raw), &is); err != nil {
			t.Fatalf("%s became %s: %v", raw, plain.JSON(raw), err)
		}
		a, _ := json.Marshal(was)
		b, _ := json.Marshal(is)
		if string(a) != string(b) {
			t.Errorf("%s became %s", a, b)
		}
	})
}

package plain

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// replacement replaces an unsafe character.
const replacement = unicode.ReplacementChar

// Text makes s safe to print. New lines and tabs are kept.
func Text(s string) string {
	if asciiFit(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	walk(s, func(r rune, _ string, fit bool) {
		if !fit {
			r = replacement
		}
		b.WriteRune(r)
	})
	return b.String()
}

// Line is Text on one line: new lines and tabs become spaces.
func Line(s string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(Text(s))
}

// JSON makes JSON safe to print: unsafe characters, which can occur in strings
// only, are escaped, and a carriage return between values becomes a space. The
// value does not change. JSON that needs no change is returned as it is.
func JSON(raw []byte) []byte {
	s := string(raw)
	if asciiFit(s) {
		return raw
	}
	var b bytes.Buffer
	b.Grow(len(raw))
	walk(s, func(r rune, bytes string, fit bool) {
		switch {
		case fit:
			b.WriteString(bytes)
		case r == '\r':
			b.WriteByte(' ')
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+(r>>10), 0xDC00+(r&0x3FF))
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	})
	return b.Bytes()
}

// asciiFit reports whether s consists of safe ASCII only, as most output does.
func asciiFit(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\n' && c != '\t' || c >= 0x7F {
			return false
		}
	}
	return true
}

// walk calls f with each character, its bytes, and whether it is safe in its
// place. An invalid byte is passed as replacement, and is unsafe.
func walk(s string, f func(r rune, bytes string, fit bool)) {
	var before rune
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		fit := r == '\n' || r == '\t' || !hidden(r)
		switch {
		case r == utf8.RuneError && n == 1:
			fit = false
		case r == zwnj || r == zwj:
			after, _ := utf8.DecodeRuneInString(s[n:])
			fit = joins(before) && joins(after)
		}
		f(r, s[:n], fit)
		before, s = r, s[n:]
	}
}

const (
	zwnj = '\u200C'
	zwj  = '\u200D'
)

// joins reports whether r is of a script, or a sign, that is used with joiners.
// Latin, Greek and Cyrillic are not, in which words could be forged.
func joins(r rune) bool { return r >= 0x0590 && r != utf8.RuneError && !hidden(r) }

// hidden reports whether r controls a terminal or is invisible.
func hidden(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point) &&
		!unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// ShellWord quotes a word that a shell would split or expand.
func ShellWord(s string) string {
	if s != "" && !strings.ContainsAny(s, " \t\n'\"\\$`*>?;&|<(){}[]!#~") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

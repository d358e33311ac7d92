package agents

import (
	"fmt"
	"strings"
)

// SplitCommand splits an operator's command line into a program and its
// arguments, as a POSIX shell splits words: white space separates, '…' keeps
// everything, "…" keeps everything but \" and \\, and a backslash keeps the
// next character.
//
// No shell is involved and nothing is expanded. Syntax that only a shell
// understands (pipes, redirections, $NAME, a leading ~) is refused and not
// passed to the program as text: write sh -c '…' for it.
func SplitCommand(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun := false // a word has begun, possibly an empty one in quotes
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t', '\n', '\r':
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		case '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return nil, fmt.Errorf("command: the ' at character %d is never closed", i+1)
			}
			word.WriteString(line[i+1 : i+1+end])
			begun = true
			i += end + 1
		case '"':
			n, err := doubleQuoted(&word, line, i)
			if err != nil {
				return nil, err
			}
			begun = true
			i = n
		case '\\':
			if i++; i == len(line) {
				return nil, fmt.Errorf(`command: nothing follows the \ at its end`)
			}
			word.WriteByte(line[i])
			begun = true
		case '|', '&', ';', '<', '>', '(', ')', '$', '`':
			return nil, shellOnly(line, i)
		default:
			if c == '~' && !begun || c == '#' && !begun {
				return nil, shellOnly(line, i)
			}
			if c == 0 {
				return nil, fmt.Errorf("command: character %d is NUL", i+1)
			}
			word.WriteByte(c)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	if len(words) == 0 || words[0] == "" {
		return nil, fmt.Errorf("command: it is empty")
	}
	return words, nil
}

// doubleQuoted copies the text between the quote at i and the closing quote,
// whose index it returns.
func doubleQuoted(word *strings.Builder, line string, i int) (int, error) {
	open := i
	for i++; i < len(line); i++ {
		switch c := line[i]; c {
		case '"':
			return i, nil
		case '\\':
			if i+1 < len(line) && strings.IndexByte("\"\\$`", line[i+1]) >= 0 {
				i++
			}
			word.WriteByte(line[i])
		case '$', '`':
			return 0, shellOnly(line, i)
		default:
			word.WriteByte(c)
		}
	}
	return 0, fmt.Errorf(`command: the " at character %d is never closed`, open+1)
}

func shellOnly(line string, i int) error {
	return fmt.Errorf("command: %q at character %d means something to a shell only: put it into single quotes to pass it on, or run sh -c '…'", line[i], i+1)
}

package limit

import (
	"strconv"
	"strings"
)

// Number is a number whose text a double would change, such as 9007199254740993. Only values
// for JMESPath queries have such numbers; all others are of type float64.
type Number string

// MarshalJSON returns the number's text.
func (n Number) MarshalJSON() ([]byte, error) { return []byte(n), nil }

// maxDigits is the longest text of a Number: a query may read it as often as it likes.
const maxDigits = 256

// NumberOf returns a number of JSON: a float64 if that has the same value or if the text is
// longer than 256 bytes, else a Number. A number beyond a double is an infinity.
func NumberOf(text string) any {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || len(text) > maxDigits || digits(text) == digits(strconv.FormatFloat(f, 'e', -1, 64)) {
		return f
	}
	return Number(text)
}

// digits returns the significant digits of a number.
func digits(text string) string {
	text, _, _ = strings.Cut(strings.ToLower(text), "e")
	return strings.Trim(strings.NewReplacer("-", "", ".", "").Replace(text), "0")
}

// Float returns a number as a double.
func Float(v any) (f float64, ok bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case Number:
		f, err := strconv.ParseFloat(string(v), 64)
		return f, err == nil
	}
	return 0, false
}

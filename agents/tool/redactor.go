package tool

// Redactor removes known credentials from texts of servers and programs. It is used before a text
// is shortened, because a part of a credential would not be recognised.
type Redactor interface {
	// Scrub removes them from a whole text.
	Scrub(text string) string
	// Head removes them from the beginning of a longer text, also one that is cut off at its end.
	Head(text string) string
	// Tail removes them from the end of a longer text, also one that is cut off at its beginning.
	Tail(text string) string
}

// NoRedactor is a Redactor that knows no credentials.
type NoRedactor struct{}

// Scrub returns the text.
func (NoRedactor) Scrub(text string) string { return text }

// Head returns the text.
func (NoRedactor) Head(text string) string { return text }

// Tail returns the text.
func (NoRedactor) Tail(text string) string { return text }

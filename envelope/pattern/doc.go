// Package pattern provides regular expressions that are compiled at their first use. The program
// has a hundred of them, and most commands use none. Compiling all of them at the start took a
// twelfth of a command's processor time.
package pattern

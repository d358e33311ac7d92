// Package program runs agents whose work an external program does. The program
// reads tasks from its standard input and writes answers to its standard
// output, one JSON object per line. [Program] documents the lines; docs/aaif.md
// is for authors of such programs.
package program

// Package program runs agents whose work any program does: it reads tasks from its standard
// input and writes answers to its standard output, one JSON object a line. [Program] has the
// lines; docs/aaif.md tells writers of programs about it.
package program

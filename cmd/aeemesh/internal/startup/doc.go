// Package startup makes each start of the program cheaper: for its first two seconds the Go
// runtime collects garbage less often.
//
// The packages that the program is made of allocate 6 MB before main runs. With Go's usual
// setting, that and the parsing of the command line are several collections, a sixth of the
// processor time of a short command. Go initializes a package when those are ready that it
// imports, so this one, which imports little, comes before half of the others.
package startup

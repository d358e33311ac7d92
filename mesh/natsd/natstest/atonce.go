package natstest

import (
	"flag"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
)

// AtOnce lets n of a package's parallel tests run at once, whatever the number of
// cores, unless -parallel says otherwise: tests of a mesh wait for leases, processes
// and servers more than they compute. It is for TestMain:
//
//	natstest.VerifyMain(natstest.AtOnce(m, 16))
func AtOnce(m *testing.M, n int) *Main { return &Main{m, n} }

// Main is a testing.M whose tests run more at once.
type Main struct {
	m *testing.M
	n int
}

// Run runs the tests, with less frequent garbage collections unless GOGC is set.
func (m *Main) Run() int {
	if !flag.Parsed() {
		flag.Parse()
	}
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		if err := flag.Set("test.parallel", strconv.Itoa(m.n)); err != nil {
			panic(err)
		}
	}
	if os.Getenv("GOGC") == "" {
		os.Setenv("GOGC", gcPercent) // for the programs that tests start
		n, _ := strconv.Atoi(gcPercent)
		debug.SetGCPercent(n)
	}
	return m.m.Run()
}

// gcPercent is GOGC of the tests: heaps of tests are small, and a program of 55 MB collects
// garbage several times before it has begun, which is a quarter of the CPU time of a start.
const gcPercent = "400"

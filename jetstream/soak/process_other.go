//go:build !unix

package soak

import (
	"os"
	"os/exec"
)

func ownProcessGroup(*exec.Cmd) {}

func terminate(p *os.Process) { p.Kill() }
func freeze(*os.Process)      {}
func thaw(*os.Process)        {}

const canFreeze = false

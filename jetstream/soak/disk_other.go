//go:build !linux

package soak

import (
	"errors"
	"os"
)

func mount(string, int64) (*os.File, error) { return nil, errors.ErrUnsupported }
func unmount(string) error                  { return errors.ErrUnsupported }
func unmountLost() ([]string, error)        { return nil, nil }
func isFull(error) bool                     { return false }

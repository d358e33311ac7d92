//go:build !linux

package soak

import "errors"

func mount(string, int64) error { return errors.ErrUnsupported }
func unmount(string) error      { return errors.ErrUnsupported }
func isFull(error) bool         { return false }

//go:build !linux

package natstest

func memoryDir() string { return "" }

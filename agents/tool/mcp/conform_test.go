package mcp_test

func conform(string) error { return nil }

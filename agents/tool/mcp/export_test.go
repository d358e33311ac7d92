package mcp

import "time"

// WithWriteTimeout sets the timeout of sending a message.
func WithWriteTimeout(d time.Duration) func(*Config) {
	return func(c *Config) { c.writeTimeout = d }
}

// Package mcp gives agents the tools of Model Context Protocol servers.
package mcp

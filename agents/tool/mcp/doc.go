// Package mcp gives agents the tools of Model Context Protocol servers.
//
//	servers, err := mcp.NewServers(mcp.Config{
//		Servers: map[string]mcp.Server{
//			"github": {Command: []string{"github-mcp-server", "stdio"}, Env: []string{"GITHUB_TOKEN"}},
//			"wiki":   {URL: "https://wiki.example.com/mcp", Auth: &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "WIKI_TOKEN"}},
//		},
//		Env: os.LookupEnv,
//		Log: logger,
//	})
//	defer servers.Close()
//	source, err := servers.Open(&aaif.Tool{Name: "issue", Protocol: aaif.ProtocolMCP, Endpoint: "mcp://github/create_issue"})
//	tools, err := source.Tools(ctx)
//
// # Endpoints
//
// What an entry of a document's tools[] may name (endpoint.go; AAIF, Tool
// Definitions):
//
//   - mcp://SERVER/CAPABILITY, a server of the operator's list;
//   - stdio:COMMAND, which must be word for word the command of a server of the
//     list: a document never chooses a program;
//   - an http, https, ws or wss address, of the list or allowed by Config.Allow.
//
// The capability, in full addresses their fragment (https://host/mcp#search), is
// one tool of the server, a prefix and *, or all: * or nothing. One tool is
// offered under the document's name and description, and with the document's
// schemas where it has any; the server still checks its own. Several are offered
// as the server describes them, under their own names made legal (list.go).
// Prompts and resources of servers are not offered.
//
// # Sessions
//
// There is one session for each server and credential (link.go), begun when it
// is first needed, shared by all agents and runs, and begun anew after it has
// ended: the process died, the connection broke, pings were not answered. A
// server that cannot be reached is tried later and later, up to every 30
// seconds; calls fail at once meanwhile, as tool.ErrUnavailable. A list of tools
// holds until the server says that it has changed, or the session is another.
//
// dial.go begins sessions: over a program's pipes (stdio.go), streamable HTTP or
// the older SSE (http.go), or a WebSocket (websocket.go). The protocol is the
// SDK's, versions 2024-11-05 to 2026-07-28. Programs get only the environment
// that the operator lists, are ended as a process group, and what they write to
// standard error goes to the log, within bounds.
//
// # Calls
//
// A call carries its idempotency key as _meta["aeemesh/idempotency-key"]; see
// [KeyMeta]. When its context ends, the server is told (notifications/cancelled).
// Results become JSON as result.go says; numbers of structured content stay
// exact (exact.go). A result that is an error is one that the model can read.
// [Tool.RepeatSafe] believes the annotations of servers that are on the list.
//
// # Trust
//
// Servers are strangers' programs. Messages are bounded in size, lists in length;
// their schemas are text until the guard around a tool compiles them, without
// loading anything. Their descriptions and results reach the model: what they say
// is as much to be trusted as the server. What they ask of clients (sampling,
// elicitation, roots) is refused. OAuth by discovery is not done: a credential is
// what the operator or the document names.
package mcp

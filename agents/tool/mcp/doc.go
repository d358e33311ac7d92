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
// An entry of a document's tools[] may name (endpoint.go; AAIF, Tool
// Definitions):
//
//   - mcp://SERVER/CAPABILITY, a server of the operator's list;
//   - stdio:COMMAND, which must equal the command of a server of the list word
//     for word: a document never chooses a program;
//   - an http, https, ws or wss address, of the list or allowed by Config.Allow.
//
// The capability is the fragment of a full address (https://host/mcp#search). It names one tool of
// the server, or several by a prefix and *; * or nothing means all. A single tool has the
// document's name and description, and the document's schemas if there are any; the server still
// checks its own. Several tools are offered as the server describes them, under their own names,
// converted to legal ones (list.go). Prompts and resources of servers are not offered.
//
// # Sessions
//
// There is one session for each server and credential (link.go), shared by all agents and runs. It
// is started when it is first needed. It is started again after the process has exited, the
// connection has broken, or the server has not answered pings while it had no call to work on. A
// server that cannot be reached is retried with growing delays of up to 30 seconds; meanwhile
// calls fail at once, with tool.ErrUnavailable. A list of tools is valid until the server reports
// a change, or a new session starts. Over HTTP it is also requested again when notices may have been
// lost, or may not come at all (notices.go).
//
// dial.go begins sessions: over a program's pipes (stdio.go), streamable HTTP or the older SSE
// (http.go), or a WebSocket (websocket.go). The protocol is the SDK's, versions 2024-11-05 to
// 2026-07-28. Programs get only the environment that the operator lists. They are ended as a
// process group. Their standard error goes to the log, within bounds.
//
// # Calls
//
// A call carries its idempotency key as _meta["aeemesh/idempotency-key"]; see [KeyMeta]. When its
// context ends, the server is told (notifications/cancelled). Results become JSON as result.go
// says; numbers of structured content stay exact (exact.go). The model gets the text of a result
// that is an error. [Tool.RepeatSafe] uses the annotations of servers in the operator's list only.
//
// # Trust
//
// Servers may be untrusted. Messages are bounded in size, lists in length. The guard around a tool
// compiles schemas without loading anything. Descriptions and results reach the model, and are only
// as trustworthy as the server. Requests to clients (sampling, elicitation, roots) are refused.
package mcp

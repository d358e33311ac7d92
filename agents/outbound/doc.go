// Package outbound is the operator's policy for what agents may reach over
// HTTP, and a guarded [http.Client] that enforces it.
//
// The endpoints of a document's tools are untrusted: a stranger may have
// written them (AAIF, Security Considerations). A tool becomes active only if
// the policy allows its endpoint, and every request is checked against the
// policy again when it is made.
//
//	p, err := outbound.New(outbound.Config{Allow: []string{"api.example.com", "*.crm.example.com", "http://127.0.0.1:8080"}})
//	u, err := p.Check("https://api.example.com/v1/orders") // or an error that names the line to add
//	client, err := p.Client(outbound.Options{Endpoint: u, Auth: entry.Auth, Secrets: set})
//
// # What is allowed
//
// Nothing, unless [Config].Allow says so. An entry is a host, host:port,
// *.domain (its subdomains), or a prefix of the endpoint's URL. A host alone
// stands for https on port 443. Plain http is allowed only by an entry that
// begins with http://. The entry * stands for https on any host.
//
// Addresses that are not public (private, loopback, link-local, shared,
// multicast, reserved; IPv4 inside IPv6) are refused in any case, unless the
// entry itself is that address or localhost, or [Config].Private has it. The
// metadata services of clouds are refused unless Private lists their exact
// address. Addresses are checked when the connection is made, after the name
// was resolved, so a name that later resolves to another address is checked
// again (host.go, address.go, client.go).
//
// # What a client does
//
// It checks every redirect like the first request, follows at most five, none
// from https to http, and drops credentials and every header of the caller's
// own, the Idempotency-Key too, when one leads to another origin. It stores no
// cookies, sends no Referer, and ignores proxies of the environment. It bounds
// the time of an exchange, the headers, and the body of the answer after
// decompression.
//
// Credentials (auth.go and one file for each mechanism) are read when a request
// is made, added to a copy of the request, and sent only to the origin of
// Options.Endpoint. No error contains them.
//
// [Access.Call] makes one call of a tool with a client, and retries it if that
// is safe and the endpoint asks for it. [Answer.JSON] converts an answer to a
// result; a [Failure] describes what went wrong in a text of limited length.
//
// # Concurrency
//
// A Policy and its clients are safe for concurrent use. Clients without mtls
// share connections; [Policy.Close] closes idle ones.
package outbound

// Package onepassword reads secrets from 1Password, through a Connect server.
//
//	v, err := onepassword.New(onepassword.Config{Address: "http://connect:8080", Token: "env:OP_CONNECT_TOKEN"}, secret.Operator(os.LookupEnv))
//
// A path is a vault and an item, by their titles or ids: Agents/SendGrid, or
// 1Password's own form op://Agents/SendGrid. A key is a field, by its label or
// id, or section and field with a slash between them; it may also stand at the
// end of an op:// path. Without a key it is the item's password, or its
// credential. Connect has only the current version; any other is not found.
//
// It speaks Connect's REST API, three GETs. The vendor's own client
// (connect-sdk-go 1.5.3) takes no context and has no time limit, puts titles
// into filters without escaping them, and installs a tracer for the whole
// process.
package onepassword

package envelopes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// CompleteMessage completes the arguments of "send" and "envelope new": first
// the entities that currently answer, then a payload with the members that the
// receiver requires.
func CompleteMessage(a *session.App, cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	switch {
	case len(args) == 0:
		return session.LiveEntities(a, cmd), none
	case len(args) > 1:
		return nil, none
	case begun != "" && begun[0] != '{':
		return nil, cobra.ShellCompDirectiveDefault // @FILE
	}
	intent, _ := cmd.Flags().GetString("intent")
	schemas := agentSchemas(a, cmd, args[0]).Schemas
	own, ok := schemas[intent]
	if !ok {
		own = schemas[intents.RunIntent(args[0])]
	}
	if payload := payloadFor(own.Task); payload != "" && strings.HasPrefix(payload, begun) {
		return []string{payload}, none | cobra.ShellCompDirectiveNoSpace
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// CompleteIntents completes an intent: one of the entity that the command
// names, or of any agent that answers.
func CompleteIntents(a *session.App, cmd *cobra.Command, args []string, _ string) (out []string, _ cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) == 0 {
		session.ToComplete(a, cmd, func(ctx context.Context, conn *nats.Conn) {
			if node, err := completionNode(a, conn, nil); err == nil {
				found, _ := node.Discover(ctx, "", session.CompletionWait)
				for _, i := range found {
					out = append(out, strings.FieldsFunc(i.Info.Metadata[mesh.MetaIntents], func(r rune) bool { return r == ',' || r == '…' })...)
				}
			}
		})
		slices.Sort(out)
		return slices.Compact(out), none
	}
	list := agentSchemas(a, cmd, args[0])
	for _, name := range list.Intents {
		if !intents.Reserved(name) {
			list.Schemas[name] = list.Schemas[name]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(list.Schemas)) {
		out = append(out, cobra.CompletionWithDesc(term.Printable(name), term.Printable(strings.Join(membersOf(list.Schemas[name].Task), ", "))))
	}
	return out, none
}

// agentSchemas asks an agent for its intents and their schemas. It signs the
// request only if the agent's workers require that.
func agentSchemas(a *session.App, cmd *cobra.Command, entity string) (list intents.CapabilityListResult) {
	if subject.ValidateEntity(entity) == nil && !mesh.PublishesTo(entity) {
		session.ToComplete(a, cmd, func(ctx context.Context, conn *nats.Conn) {
			node, err := completionNode(a, conn, nil)
			if err != nil {
				return
			}
			found, err := node.Workers(ctx, entity, session.CompletionWait)
			if err != nil || len(found) == 0 {
				return
			}
			if workers.WantSignatures(found, entity) {
				signer, err := a.Signer(a.DefaultFrom())
				if err != nil {
					return
				}
				if node, err = completionNode(a, conn, signer); err != nil {
					return
				}
			}
			ctx, cancel := context.WithTimeout(ctx, session.CompletionWait)
			defer cancel()
			_, _ = node.Query(ctx, entity, intents.CapabilityList, intents.CapabilityListTask{Schemas: true}, &list)
		})
	}
	if list.Schemas == nil {
		list.Schemas = map[string]intents.IntentSchemas{}
	}
	return list
}

// completionNode makes a node for a completion. It does not verify the
// signatures of answers, because a person sees the result before it is used.
func completionNode(a *session.App, conn *nats.Conn, signer *sign.Signer) (*mesh.Node, error) {
	return mesh.New(conn, mesh.Config{Prefix: a.Conn.Prefix, Entity: a.DefaultFrom(), Signer: signer, Verifier: sign.Verifier{Mode: sign.Off}})
}

// objectSchema is the part of a JSON Schema that a completion uses.
type objectSchema struct {
	Required   []string `json:"required"`
	Properties map[string]struct {
		Type    any             `json:"type"`
		Default json.RawMessage `json:"default"`
		Enum    []any           `json:"enum"`
	} `json:"properties"`
}

// membersOf returns the members that a schema requires of an object, else all
// that it names.
func membersOf(schema json.RawMessage) []string {
	var s objectSchema
	if json.Unmarshal(schema, &s) != nil {
		return nil
	}
	if len(s.Required) > 0 {
		return s.Required
	}
	return slices.Sorted(maps.Keys(s.Properties))
}

// maxCompleted bounds the members of a payload, because the schema may come
// from a stranger.
const maxCompleted = 32

// payloadFor returns a payload to fill in: the members of a schema, each with
// an empty value of its type; "" if the schema names none.
func payloadFor(schema json.RawMessage) string {
	members := membersOf(schema)
	if len(members) == 0 || len(members) > maxCompleted {
		return ""
	}
	var s objectSchema
	if json.Unmarshal(schema, &s) != nil {
		return ""
	}
	var out bytes.Buffer
	for i, name := range members {
		p := s.Properties[name]
		value := map[any]string{"array": "[]", "object": "{}", "number": "0", "integer": "0", "boolean": "false", "null": "null"}[scalar(p.Type)]
		switch {
		case len(p.Default) > 0:
			value = string(p.Default)
		case len(p.Enum) > 0:
			if first, err := json.Marshal(p.Enum[0]); err == nil {
				value = string(first)
			}
		}
		key, err := json.Marshal(name)
		if err != nil {
			return ""
		}
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(key)
		out.WriteString(":" + cmp.Or(value, `""`))
	}
	return term.Printable("{" + out.String() + "}")
}

// scalar returns a schema's type as one word: of a list of types the first.
func scalar(t any) any {
	if list, ok := t.([]any); ok && len(list) > 0 {
		t = list[0]
	}
	if word, ok := t.(string); ok {
		return word
	}
	return nil
}

// Package template implements schema templates: Structured Data Schema Interaction
// (draft-zhou-structured-data-schema-interaction-00) without a wire. An agent publishes
// a [Template] for each scenario. A client fills it and sends a [Payload]. The agent
// checks the payload by the template's [Form], and needs no model for that.
//
// The names are the draft's: schema_id, scenario, key_name, key_type,
// semantic_description, the key "other". Members that the draft does not have are
// optional, and a peer that does not know them loses nothing: language, description,
// response_schema and client of a template or patch; value_schema and
// semantic_descriptions of a key.
//
// A template never changes: another content needs another schema_id ([Template.Hash]).
// What is learned from the key "other" is a [Patch] beside the template. A patch adds
// optional keys and improves descriptions; its types have no way to remove a key of the
// template or to change its type.
//
// # Concurrency
//
// Templates and patches are plain values: do not change one that another goroutine
// reads. Any number of goroutines may use a Form at once.
package template

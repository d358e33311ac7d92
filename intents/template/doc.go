// Package template implements schema templates: Structured Data Schema Interaction
// (draft-zhou-structured-data-schema-interaction-00) without a wire. An agent publishes
// a [Template] for each scenario. A client fills it and sends a [Payload]. The agent
// checks the payload by the template's [Form], and needs no model for that.
//
// The names are the draft's: schema_id, scenario, key_name, key_type, semantic_description, the key
// "other". Members that the draft does not have are optional, and a peer may ignore them: language,
// description, response_schema and client of a template or patch; value_schema and
// semantic_descriptions of a key.
//
// A template never changes: another content needs another schema_id ([Template.Hash]). Keys that
// are learned from the key "other" form a [Patch] beside the template. A patch adds optional keys
// and improves descriptions; it cannot express the removal of a key of the template or a change of
// its type.
//
// # Concurrency
//
// Templates and patches are plain values: do not change one that another goroutine reads. A Form is
// safe for concurrent use.
package template

package config

// Schema returns the JSON Schema (draft 2020-12) of a file: section worker with its
// settings, and the schemas of the other sections by their names.
func Schema(settings []Setting, sections map[string]any) map[string]any {
	members := make(map[string]any, len(settings))
	for _, s := range settings {
		members[s.Key()] = s.schema()
	}
	properties := map[string]any{Section: map[string]any{
		"type": "object", "additionalProperties": false, "properties": members,
		"description": "The flags of worker, with underscores.",
	}}
	for name, schema := range sections {
		if name != Section {
			properties[name] = schema
		}
	}
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Configuration of aeemesh worker",
		"type": "object", "additionalProperties": false, "properties": properties,
	}
}

func (s Setting) schema() map[string]any {
	out := map[string]any{"description": s.Usage}
	text := map[string]any{"type": "string"}
	switch {
	case s.Secret:
		out["type"], out["description"] = "string", "Path of a file that holds the "+s.Flag+"."
	case s.Kind == Bool:
		out["type"] = "boolean"
	case s.Kind == Int:
		out["type"] = "integer"
	case s.Kind == Float:
		out["type"] = "number"
	case s.Kind == Duration:
		out["type"], out["pattern"] = "string", `^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+|0)(ns|us|µs|ms|s|m|h)?`
	case s.Kind == List:
		out["anyOf"] = []any{text, map[string]any{"type": "array", "items": text}}
	default:
		out["type"] = "string"
	}
	return out
}

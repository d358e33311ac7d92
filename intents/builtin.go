package intents

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/aeemesh/aeemesh/intents/schema"
)

// Our own schemas of the reserved intents, laid out as the draft recommends
// ("Intent Schema Publishing"): <intent>.<variant>.schema.json.
//
//go:embed *.task.schema.json *.result.schema.json *.error.schema.json
var schemaFiles embed.FS

// Files returns the embedded schemas of the reserved intents, to publish or print them.
func Files() fs.FS { return schemaFiles }

// builtin compiles the embedded schemas, once in a process.
var builtin = sync.OnceValue(func() snapshot {
	definitions, err := ReadFS(schemaFiles)
	if err != nil {
		panic(fmt.Sprintf("intents: embedded schemas: %v", err))
	}
	s := snapshot{intents: make(map[string]*intent, len(definitions))}
	for _, d := range definitions {
		compiled, err := d.compile()
		if err != nil {
			panic(fmt.Sprintf("intents: embedded schemas: %v", err))
		}
		s.intents[d.Intent] = compiled
	}
	s.names = slices.Sorted(maps.Keys(s.intents))
	return s
})

// The schemas of the mesh's events, by the topic of the bus that they go to:
// <topic>.event.schema.json.
//
//go:embed *.event.schema.json
var eventFiles embed.FS

// EventFiles returns the embedded schemas of the mesh's events, to publish or print them.
func EventFiles() fs.FS { return eventFiles }

var eventSchemas = sync.OnceValue(func() map[string]*Schema {
	out := map[string]*Schema{}
	for _, topic := range []string{"mesh.agent", "mesh.task", "mesh.run", "mesh.alert"} {
		raw, err := eventFiles.ReadFile(topic + ".event.schema.json")
		if err == nil {
			out[topic], err = schema.Compile(raw)
		}
		if err != nil {
			panic(fmt.Sprintf("intents: embedded schemas: %v", err))
		}
	}
	return out
})

// EventSchema returns the schema for the payloads of the mesh's events on a bus topic,
// such as mesh.task; nil for topics that are not the mesh's. The mesh does not validate
// events: the schema is for their readers.
func EventSchema(topic string) *Schema { return eventSchemas()[topic] }

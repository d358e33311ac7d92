package intents

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Our own schemas of the reserved intents, laid out as the draft recommends
// ("Intent Schema Publishing"): <intent>.<variant>.schema.json.
//
//go:embed *.task.schema.json *.result.schema.json *.error.schema.json
var schemaFiles embed.FS

// builtin reads the embedded schemas, once in a process. Each is compiled when it is first needed:
// a process needs few of them, and compiling all takes longer than its start.
var builtin = sync.OnceValue(func() snapshot {
	definitions, err := ReadFS(schemaFiles)
	if err != nil {
		panic(fmt.Sprintf("intents: embedded schemas: %v", err))
	}
	s := snapshot{intents: make(map[string]*intent, len(definitions))}
	for _, d := range definitions {
		known := &intent{}
		for i, v := range variants {
			if d.has(v) {
				known.schemas[i] = sync.OnceValue(func() *Schema {
					compiled, err := d.compileVariant(v)
					if err != nil {
						panic(fmt.Sprintf("intents: embedded schemas: %v", err))
					}
					return compiled
				})
			}
		}
		s.intents[d.Intent] = known
	}
	s.names = slices.Sorted(maps.Keys(s.intents))
	return s
})

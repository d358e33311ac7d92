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

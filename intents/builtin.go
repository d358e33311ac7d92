package intents

import (
	"embed"
	"fmt"
	"io/fs"
	"sync"
)

// Our own schemas of the reserved intents, laid out as the draft recommends
// ("Intent Schema Publishing"): <intent>.<variant>.schema.json.
//
//go:embed *.task.schema.json *.result.schema.json *.error.schema.json
var schemaFiles embed.FS

// Files are the embedded schemas of the reserved intents, for whoever wants to
// publish or print them.
func Files() fs.FS { return schemaFiles }

// builtin compiles the embedded schemas, once a process.
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
	s.names = sorted(s.intents)
	return s
})

package auth

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/orchestrate/directory"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// permsNamed holds the entities that the arguments of "auth perms" name, and
// those that their documents refer to.
type permsNamed struct {
	entities  []string
	calls     []string // entities that they send tasks to
	takesOver []string // entities that their tasks are delegated to
	team      bool     // some references can be resolved only in the mesh
}

// permsDocument is an agent's document.
type permsDocument struct {
	name   string
	entity string
	def    *aaif.Definition
}

// permsFor reads the arguments of "auth perms": entities, and files of documents.
func permsFor(a *session.App, args []string) (permsNamed, error) {
	var out permsNamed
	var docs []permsDocument
	for _, arg := range args {
		if !isDocument(arg) {
			if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() {
				a.Term.Warn("%s is an entity here; ./%s would be the file", arg, arg)
			}
			out.entities = append(out.entities, arg)
			continue
		}
		d, err := readPermsDocument(a, arg)
		if err != nil {
			return out, err
		}
		docs, out.entities = append(docs, d), append(out.entities, d.entity)
	}
	for _, d := range docs {
		refs := directory.References(d.def)
		out.team = out.team || len(refs) > 0
		for _, ref := range refs {
			who := resolveReference(ref, d, docs)
			switch {
			case who == "":
				a.Term.Warn("%s names %q, which may be any agent: --calls names those that it needs to reach", d.name, ref)
			case who != d.entity && !slices.Contains(out.calls, who):
				out.calls = append(out.calls, who)
			}
		}
		if o := d.def.Agent.Orchestration; o != nil {
			for _, h := range o.Handoff {
				to := resolveReference(aliased(o, h.TargetAgent), d, docs)
				if slices.Contains(out.entities, to) && !slices.Contains(out.takesOver, d.entity) {
					out.takesOver = append(out.takesOver, d.entity)
				}
			}
		}
	}
	return out, nil
}

// isDocument reports whether an argument names a file, and not an entity of a
// known type.
func isDocument(arg string) bool {
	switch subject.EntityType(arg) {
	case subject.TypeAgent, subject.TypeService, subject.TypeHuman, subject.TypeBus:
		return false // ./agent.yaml names the file
	}
	if _, err := os.Stat(arg); err == nil {
		return true
	}
	switch filepath.Ext(arg) {
	case ".yaml", ".yml", ".json", ".cbor":
		return true // it is missing, and no entity is of type "reviewer" and named "yaml"
	}
	return false
}

func readPermsDocument(a *session.App, name string) (permsDocument, error) {
	data, err := a.ReadDocument(name, aaif.DefaultMaxBytes+1)
	if err != nil {
		return permsDocument{}, err
	}
	doc, err := aaif.Parse(data, aaif.Options{Name: name})
	if err != nil {
		return permsDocument{}, err
	}
	def := doc.Definition()
	if def == nil {
		return permsDocument{}, outcome.Hinted(fmt.Errorf("%s is no agent definition", name), "\"aeemesh validate %s\" says what it is.", name)
	}
	entity, err := aaif.EntityName(def.Agent.Name)
	return permsDocument{name, entity, def}, err
}

// resolveReference resolves a reference in a document to an entity, by itself or with the
// other documents; "" if that is not possible.
func resolveReference(ref string, from permsDocument, docs []permsDocument) string {
	if orchestrate.IsEntity(ref) {
		return ref
	}
	id := strings.TrimPrefix(strings.ToLower(ref), "urn:uuid:")
	path := strings.TrimPrefix(ref, "file:")
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(from.name), path)
	}
	for _, d := range docs {
		if strings.ToLower(d.def.AgentID) == id && id != "" || filepath.Clean(d.name) == path || d.entity == "agent."+ref {
			return d.entity
		}
	}
	return ""
}

// aliased returns the reference that an alias stands for.
func aliased(o *aaif.Orchestration, name string) string {
	for _, s := range o.Subagents {
		if s.Alias == name {
			return s.Ref
		}
	}
	return name
}

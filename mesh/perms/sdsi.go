package perms

import (
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

// Templates are what a worker of the entity needs that publishes schema templates and learns
// from what fits none of their keys.
func Templates(m subject.Map, entity string) (Permissions, error) {
	g := &grant{m: m}
	keys := jetstream.SDSISubjects(m, entity)
	g.publish(keys, g.of(m.Bus("sdsi."+entity)))
	g.read(g.bucket(jetstream.BucketSDSI), keys)
	return g.done()
}

// TemplateEvents let a sender hear of new templates of the given entities.
func TemplateEvents(m subject.Map, entities ...string) (Permissions, error) {
	g := &grant{m: m}
	for _, entity := range entities {
		g.subscribe(g.of(m.Bus("sdsi." + entity)))
	}
	return g.done()
}

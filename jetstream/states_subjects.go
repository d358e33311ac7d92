package jetstream

import (
	"errors"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/state"
)

// runSubjects are the subjects of runs in the stream of a bucket. A run's key in the bucket
// is <entity>.<run id>, each token escaped by [subject.Escape].
type runSubjects struct {
	stream string
	pub    string // prefix of a key's subject for publishing
	sub    string // prefix of a key's subject in the stream

	replyPub, replySub string // like pub and sub, for the replies of runs; "" if the bucket takes none
}

// subjectsOf returns the subjects of a bucket's runs, without replies. prefix is that of
// subjects to publish to.
func subjectsOf(bucket, prefix string) runSubjects {
	sub := "$KV." + bucket + "."
	return runSubjects{stream: "KV_" + bucket, sub: sub, pub: prefix + sub}
}

// withReplies adds the subjects of replies to those of m's [BucketState].
func (r runSubjects) withReplies(m subject.Map, prefix string) runSubjects {
	r.replySub = strings.TrimSuffix(allRunReplies(m), ">")
	r.replyPub = prefix + r.replySub
	return r
}

// pattern returns the pattern of a key's subjects, of the document and of the reply, or of
// several keys'.
func (r runSubjects) pattern(key string) string {
	if r.replySub == "" {
		return r.sub + key
	}
	return "$KV.*." + key
}

// keyOf returns the key that a subject of the stream belongs to, and whether it is that of
// the reply.
func (r runSubjects) keyOf(subj string) (key string, reply bool) {
	if r.replySub != "" {
		if key, reply = strings.CutPrefix(subj, r.replySub); reply {
			return key, true
		}
	}
	return strings.TrimPrefix(subj, r.sub), false
}

// filter returns the pattern of an entity's runs, or of all runs.
func (r runSubjects) filter(entity string) (string, error) {
	if entity == "" {
		return r.pattern(">"), nil
	}
	return r.pattern(entityKey(entity) + ".*"), subject.ValidateEntity(entity)
}

// documents returns the pattern of the documents of an entity's runs, or of all runs.
func (r runSubjects) documents(entity string) string {
	if entity == "" {
		return r.sub + ">"
	}
	return r.sub + entityKey(entity) + ".*"
}

// subjects returns the patterns of the documents and of the replies of an entity's runs, or
// of all runs.
func (r runSubjects) subjects(entity string) []string {
	docs := r.documents(entity)
	if r.replySub == "" {
		return []string{docs}
	}
	return []string{docs, r.replySub + strings.TrimPrefix(docs, r.sub)}
}

// byKey adds up the numbers of messages of each key.
func (r runSubjects) byKey(subjects map[string]int) map[string]int {
	keys := make(map[string]int, len(subjects))
	for subj, n := range subjects {
		key, _ := r.keyOf(subj)
		keys[key] += n
	}
	return keys
}

// RunSubjects is the pattern of the subjects of an entity's runs.
func RunSubjects(m subject.Map, entity string) string {
	return "$KV." + BucketState + m.Suffix() + "." + entityKey(entity) + ".*"
}

// ReplySubjects is the pattern of the subjects under which the replies of an entity's
// runs are stored.
func ReplySubjects(m subject.Map, entity string) string {
	return "$KV." + repliesBucket + m.Suffix() + "." + entityKey(entity) + ".*"
}

// DocumentSubjects is the pattern of the subjects of the chunks of an entity's large
// documents.
func DocumentSubjects(m subject.Map, entity string) string {
	return "$O." + ObjectsState + m.Suffix() + ".C." + entityKey(entity) + ".*.*.*" // run, token, number
}

// stateKey is a run's key in the bucket.
func stateKey(id state.ID) string {
	return entityKey(id.Entity) + "." + subject.Escape(id.Run)
}

// entityKey returns an entity with each of its tokens escaped.
func entityKey(entity string) string {
	plain := true // nearly always: then it takes no memory
	for t := range strings.SplitSeq(entity, ".") {
		plain = plain && len(subject.Escape(t)) == len(t)
	}
	if plain {
		return entity
	}
	tokens := strings.Split(entity, ".")
	for i, t := range tokens {
		tokens[i] = subject.Escape(t)
	}
	return strings.Join(tokens, ".")
}

// stateID parses a key.
func stateID(key string) (state.ID, error) {
	tokens := strings.Split(key, ".")
	for i, t := range tokens {
		var err error
		if tokens[i], err = subject.Unescape(t); err != nil {
			return state.ID{}, err
		}
	}
	n := len(tokens) - 1
	id := state.ID{Entity: strings.Join(tokens[:n], "."), Run: tokens[n]}
	if stateKey(id) != key {
		return state.ID{}, errors.New("the key is none of a run")
	}
	return id, id.Validate()
}

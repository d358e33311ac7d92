package schema

// Examine validates a document for a caller that explains the problems in its own words:
// it looks for up to most problems, with whole pointers and with [Problem.Place].
//
// The caller must have bounded the document: its bytes, its depth to at most 1,000 levels, and the
// size of its numbers, because large numbers are expensive to compare. format is an annotation, as
// in draft 2020-12. The limit of work is that of [Schema.Validate]. If it is exceeded, Examine
// returns the problems found so far and sets truncated. It also sets truncated if there are more
// than most problems.
func (s *Schema) Examine(doc []byte, most int) (problems []Problem, truncated bool) {
	e := evals.Get().(*eval)
	e.examines, e.anyNumber, e.most = true, true, most
	return e.validate(s, doc, len(doc))
}

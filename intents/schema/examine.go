package schema

// Examine validates a document for a caller that explains the problems in its own words:
// it looks for up to most problems, with whole pointers and with [Problem.Place].
//
// The caller has bounded the document: its bytes, its depth to at most 1,000 levels, and
// the size of its numbers to what it can afford to compare. format is an annotation, as
// draft 2020-12 has it. The limit of work holds as in [Schema.Validate]; problems that were
// found before it are returned, and truncated is set, as it is beyond most.
func (s *Schema) Examine(doc []byte, most int) (problems []Problem, truncated bool) {
	e := evals.Get().(*eval)
	e.examines, e.anyNumber, e.most = true, true, most
	return e.validate(s, doc, len(doc))
}

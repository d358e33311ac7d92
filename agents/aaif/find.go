package aaif

// FindCredential looks for a credential in a JSON value, as a document is searched for
// them: where it stands (a JSON Pointer), and what it looks like. What is no JSON has
// none.
func FindCredential(raw []byte) (pointer, what string, found bool) {
	tree, problems := decodeJSON(raw, maxMaxDepth)
	if problems != nil {
		return "", "", false
	}
	var s secretScan
	s.value(tree, "", harmless)
	if len(s.problems) == 0 {
		return "", "", false
	}
	return s.problems[0].Pointer, s.problems[0].Message, true
}

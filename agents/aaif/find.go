package aaif

// FindCredential looks for a credential in a JSON value with the rules of the
// scan of documents. It returns the JSON pointer and the kind of the first one.
// Invalid JSON has none.
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

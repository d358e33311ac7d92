package secrettest

import (
	"strings"

	"github.com/aeemesh/aeemesh/agents/secret"
)

// Find returns the names of the given secrets that a text contains, as they are
// or in one of the [secret.Forms].
func Find(text string, secrets map[string]string) []string {
	var found []string
	for name, value := range secrets {
		for _, form := range secret.Forms(secret.New(value)) {
			if strings.Contains(text, form) {
				found = append(found, name)
				break
			}
		}
	}
	return found
}

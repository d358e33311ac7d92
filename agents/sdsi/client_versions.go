package sdsi

import (
	"fmt"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/template"
)

// content identifies content that never changes: a version in one language, or, with language "",
// the version without its descriptions.
type content struct{ entity, schemaID, language string }

// maxContents is how many contents a client remembers.
const maxContents = 4 * maxRemembered

// sameContent checks that a version has the same content as before. Otherwise its error wraps
// [ErrTaken].
func (c *Client) sameContent(entity string, t *template.Template) error {
	bare := *t
	bare.Language, bare.Keys = "", append([]template.Key{}, t.Keys...)
	for i := range bare.Keys {
		bare.Keys[i].Description, bare.Keys[i].Descriptions = "", nil
	}
	hashes := map[content]string{
		{entity, t.SchemaID, ""}:               bare.Hash(),
		{entity, t.SchemaID, "=" + t.Language}: t.Hash(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, hash := range hashes {
		if was := c.contents[id]; was != "" && was != hash {
			return fmt.Errorf("template of %s: %s: %w", entity, clip.Text(t.SchemaID, 128), ErrTaken)
		}
	}
	for id, hash := range hashes {
		if len(c.contents) >= maxContents && c.contents[id] == "" {
			clear(c.contents)
		}
		c.contents[id] = hash
	}
	return nil
}

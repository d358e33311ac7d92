package rest

import (
	"encoding/json"
	"net/url"
)

// URLOf is the URL that a call would ask for.
func (t *Tool) URLOf(args json.RawMessage) (*url.URL, error) {
	r, err := t.request(args)
	return r.URL, err
}

package rest

import (
	"encoding/json"
	"net/url"
)

// URLOf is the URL that a call would ask for.
func (t *Tool) URLOf(args json.RawMessage) (*url.URL, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(args, &members); err != nil {
		return nil, err
	}
	r, err := t.request(members)
	return r.URL, err
}

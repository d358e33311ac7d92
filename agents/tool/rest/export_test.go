package rest

import (
	"encoding/json"
	"net/url"
)

// URLOf returns the URL that a call would request.
func (t *Tool) URLOf(args json.RawMessage) (*url.URL, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(args, &members); err != nil {
		return nil, err
	}
	r, err := t.request(members)
	return r.URL, err
}

package health

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxAnswer bounds what a probe reads.
const maxAnswer = 1 << 20

// Probe asks a URL, and returns nil where it answers 2xx. The error says what does
// not hold, where the answer is a [Report].
func Probe(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, // no proxy: it is this machine's
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 == 2 {
		return nil
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	var r Report
	if err != nil || json.Unmarshal(raw, &r) != nil || len(r.Checks) == 0 {
		return fmt.Errorf("%s answers %s", url, res.Status)
	}
	var bad []string
	for _, c := range r.Checks {
		if !c.OK {
			bad = append(bad, c.Name+": "+c.Why)
		}
	}
	return fmt.Errorf("not ready: %s", strings.Join(bad, "; "))
}

package health

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxAnswer bounds the answer that a probe reads, in bytes.
const maxAnswer = 1 << 20

// Probe requests a URL, and returns nil if the status is 2xx. If the answer is
// a [Report], the error lists the failed checks.
func Probe(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, // without a proxy: the URL is on this machine
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

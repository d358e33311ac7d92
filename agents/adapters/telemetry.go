package adapters

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Telemetry has the operator's permissions for telemetry of agents, and for its collectors, beyond
// the OTEL_* variables of the process.
type Telemetry struct {
	// Content adds texts to spans: prompts, answers, arguments and results of
	// tools. Default false.
	Content bool `json:"content,omitempty"`

	// Endpoints are the collectors that documents may name in telemetry.otlp_endpoint, by scheme,
	// host and port: "https://otel.example:4318". Documents may be untrusted, and telemetry reveals
	// much. Default none: everything is sent to the collector of the OTEL_* variables.
	Endpoints []string `json:"endpoints,omitempty"`
}

// Telemetry returns the configuration's section of that name.
func (s *Set) Telemetry() Telemetry { return s.cfg.Telemetry }

// Collector parses a document's telemetry.otlp_endpoint, if the operator
// permits it. Schemes are http and https, and grpc and grpcs for OTLP over
// gRPC, whatever the process' own protocol is.
func (t Telemetry) Collector(endpoint string) (*url.URL, error) {
	u, origin, err := collector(endpoint)
	if err != nil {
		return nil, err
	}
	for _, allowed := range t.Endpoints {
		if _, o, err := collector(allowed); err == nil && o == origin {
			return u, nil
		}
	}
	return nil, fmt.Errorf("the operator does not allow the collector %s (telemetry.endpoints of --config)", origin)
}

// check reports endpoints that are not valid collectors.
func (t Telemetry) check() error {
	var bad []error
	for i, e := range t.Endpoints {
		if _, _, err := collector(e); err != nil {
			bad = append(bad, fmt.Errorf("/telemetry/endpoints/%d: %w", i, err))
		}
	}
	return errors.Join(bad...)
}

// collector parses an endpoint. The error does not quote it, because it may
// contain a credential.
func collector(endpoint string) (u *url.URL, origin string, err error) {
	u, err = url.Parse(endpoint)
	if err != nil {
		return nil, "", errors.New("the endpoint is no URL")
	}
	port := map[string]string{"http": "80", "https": "443", "grpc": "4317", "grpcs": "4317"}[u.Scheme]
	switch {
	case port == "":
		return nil, "", errors.New("the endpoint must begin with http://, https://, grpc:// or grpcs://")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, "", errors.New("the endpoint must have no credentials, query or fragment")
	case u.Hostname() == "":
		return nil, "", errors.New("the endpoint has no host")
	}
	if p := u.Port(); p != "" {
		port = p
	}
	u.Host = net.JoinHostPort(strings.ToLower(u.Hostname()), port)
	return u, u.Scheme + "://" + u.Host, nil
}

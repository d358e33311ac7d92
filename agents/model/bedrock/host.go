package bedrock

import (
	"cmp"
	"context"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

// partitions are the partitions of AWS with their domains, by the prefix of their regions' names.
// dualStack is the domain of endpoints that also answer over IPv6.
var partitions = []struct{ region, domain, dualStack string }{
	{"cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"},
	{"us-iso-", "c2s.ic.gov", "api.aws.ic.gov"},
	{"us-isob-", "sc2s.sgov.gov", "api.aws.scloud"},
	{"us-isof-", "csp.hci.ic.gov", "api.aws.hci.ic.gov"},
	{"eu-isoe-", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"},
	{"eusc-", "amazonaws.eu", "api.amazonwebservices.eu"},
	{"", "amazonaws.com", "api.aws"},
}

// host returns the URL of the service's own endpoint in a region.
func host(region string, fips, dualStack bool) string {
	name := "bedrock-runtime"
	if fips {
		name += "-fips"
	}
	for _, p := range partitions {
		if strings.HasPrefix(region, p.region) {
			domain := p.domain
			if dualStack {
				domain = p.dualStack
			}
			return "https://" + name + "." + region + "." + domain
		}
	}
	panic("unreachable: every name begins with nothing")
}

// The settings that a source of AWS's configuration, its variables or its files, may have.
type (
	namesEndpoints interface {
		GetServiceBaseEndpoint(ctx context.Context, service string) (string, bool, error)
	}
	ignoresEndpoints interface {
		GetIgnoreConfiguredEndpoints(ctx context.Context) (bool, bool, error)
	}
	wantsFIPS interface {
		GetUseFIPSEndpoint(ctx context.Context) (aws.FIPSEndpointState, bool, error)
	}
	wantsDualStack interface {
		GetUseDualStackEndpoint(ctx context.Context) (aws.DualStackEndpointState, bool, error)
	}
)

// setting returns a setting from the first source that has it.
func setting[S, V any](cfg *aws.Config, get func(S) (V, bool, error)) (none V) {
	for _, source := range cfg.ConfigSources {
		if s, ok := source.(S); ok {
			if v, found, err := get(s); found && err == nil {
				return v
			}
		}
	}
	return none
}

// configured returns the URL of the endpoint in AWS's configuration; base takes precedence over
// it.
func configured(ctx context.Context, cfg *aws.Config, base string) (string, error) {
	if base == "" {
		base = named(ctx, cfg)
	}
	fips := setting(cfg, func(s wantsFIPS) (aws.FIPSEndpointState, bool, error) { return s.GetUseFIPSEndpoint(ctx) }) == aws.FIPSEndpointStateEnabled
	dual := setting(cfg, func(s wantsDualStack) (aws.DualStackEndpointState, bool, error) {
		return s.GetUseDualStackEndpoint(ctx)
	}) == aws.DualStackEndpointStateEnabled
	if base == "" {
		return host(cfg.Region, fips, dual), nil
	}
	if fips || dual {
		return "", model.Errorf(model.ErrBadRequest, "AWS's configuration asks for a FIPS or dual-stack endpoint, which does not go with a URL")
	}
	base, err := plain(base)
	if err != nil {
		return "", model.Errorf(model.ErrBadRequest, "the endpoint in AWS's configuration: %w", err)
	}
	return base, nil
}

// plain removes the scheme's default port from a base URL, because a signature leaves it out of
// the host.
func plain(base string) (string, error) {
	u, err := endpoint.ParseBase(base)
	if err != nil {
		return "", err
	}
	u.Host = strings.TrimSuffix(u.Host, map[string]string{"https": ":443", "http": ":80"}[u.Scheme])
	u.ForceQuery = false
	return u.String(), nil
}

// named returns the URL in AWS's configuration for the service or for all services. A variable for
// all services takes precedence over a file's entry for this one.
func named(ctx context.Context, cfg *aws.Config) string {
	all := aws.ToString(cfg.BaseEndpoint)
	if os.Getenv("AWS_ENDPOINT_URL") != "" && os.Getenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME") == "" ||
		setting(cfg, func(s ignoresEndpoints) (bool, bool, error) { return s.GetIgnoreConfiguredEndpoints(ctx) }) {
		return all
	}
	return cmp.Or(setting(cfg, func(s namesEndpoints) (string, bool, error) { return s.GetServiceBaseEndpoint(ctx, "Bedrock Runtime") }), all)
}

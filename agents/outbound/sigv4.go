package outbound

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// signer signs requests for AWS (Signature Version 4).
type signer struct {
	credential      credential
	service, region string
	v4              *v4.Signer
}

// newSigner determines service and region: from the scopes of the auth block,
// service=NAME and region=NAME, or else from the endpoint's host.
func newSigner(o Options, c credential) (*signer, error) {
	s := &signer{credential: c}
	for _, scope := range o.Auth.Scopes {
		switch name, value, _ := strings.Cut(scope, "="); name {
		case "service":
			s.service = value
		case "region":
			s.region = value
		default:
			return nil, fmt.Errorf("auth aws_sigv4: scope %q is neither service=… nor region=…", clip.Text(scope, 200))
		}
	}
	service, region := awsOf(o.Endpoint.Hostname())
	s.service = cmp.Or(s.service, service)
	s.region = cmp.Or(s.region, region)
	if !awsWord.RE().MatchString(s.service) || !awsWord.RE().MatchString(s.region) {
		return nil, errors.New(`auth aws_sigv4: the host does not name service and region: give scopes ["service=…", "region=…"]`)
	}
	s.v4 = v4.NewSigner(func(opts *v4.SignerOptions) { opts.DisableURIPathEscaping = s.service == "s3" })
	return s, nil
}

var (
	awsWord   = pattern.Of(`^[a-z0-9-]{1,63}$`)
	awsRegion = pattern.Of(`^[a-z]{2,3}(-[a-z]+)+-[0-9]{1,2}$`)
)

// awsOf derives service and region from a host of AWS:
// service.region.amazonaws.com, with any prefix; id.lambda-url.region.on.aws;
// and service.amazonaws.com of global services, which are signed for us-east-1.
func awsOf(host string) (service, region string) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if rest, ok := strings.CutSuffix(host, ".on.aws"); ok {
		labels := strings.Split(rest, ".")
		if n := len(labels); n >= 2 && awsRegion.RE().MatchString(labels[n-1]) && labels[n-2] == "lambda-url" {
			return "lambda", labels[n-1]
		}
		return "", ""
	}
	rest, ok := strings.CutSuffix(strings.TrimSuffix(host, ".cn"), ".amazonaws.com")
	if !ok {
		return "", ""
	}
	labels := strings.Split(rest, ".")
	at := slices.IndexFunc(labels, awsRegion.RE().MatchString)
	switch {
	case at >= 0 && at+1 < len(labels) && labels[at+1] != "vpce": // domain.us-east-1.es.amazonaws.com
		service, region = labels[at+1], labels[at]
	case at > 0:
		service, region = labels[at-1], labels[at]
	case at < 0 && len(labels) > 0:
		service, region = labels[len(labels)-1], "us-east-1"
	}
	for suffix, signed := range map[string]string{"bedrock-runtime": "bedrock", "bedrock-agent-runtime": "bedrock", "runtime.sagemaker": "sagemaker"} {
		if service == suffix {
			service = signed
		}
	}
	return service, region
}

// maxSigned bounds the body of a signed request, in bytes.
const maxSigned = 16 << 20

func (s *signer) sign(req *http.Request, text string) error {
	keys, err := awsKeys(text)
	if err != nil {
		return err
	}
	s.credential.know(keys.SecretAccessKey)
	s.credential.know(keys.SessionToken)
	sum := sha256.New()
	if req.Body != nil && req.Body != http.NoBody {
		if req.GetBody == nil {
			return errors.New("aws_sigv4: a body that cannot be read twice cannot be signed")
		}
		body, err := req.GetBody()
		if err != nil {
			return err
		}
		defer body.Close()
		if n, err := io.Copy(sum, io.LimitReader(body, maxSigned+1)); err != nil || n > maxSigned {
			return errors.Join(err, fmt.Errorf("aws_sigv4: a body of at most %d bytes can be signed", maxSigned))
		}
	}
	hash := hex.EncodeToString(sum.Sum(nil))
	if s.service == "s3" {
		req.Header.Set("X-Amz-Content-Sha256", hash)
	}
	return s.v4.SignHTTP(req.Context(), keys, req, hash, s.service, s.region, time.Now())
}

// awsKeys parses ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN], or a JSON
// object with these names or AWS's own spelling of them.
func awsKeys(text string) (aws.Credentials, error) {
	var c aws.Credentials
	if strings.HasPrefix(text, "{") {
		var object map[string]any
		if json.Unmarshal([]byte(text), &object) == nil {
			for name, v := range object {
				value, _ := v.(string)
				switch strings.ToLower(strings.ReplaceAll(name, "_", "")) {
				case "accesskeyid", "awsaccesskeyid":
					c.AccessKeyID = value
				case "secretaccesskey", "awssecretaccesskey":
					c.SecretAccessKey = value
				case "sessiontoken", "awssessiontoken", "token":
					c.SessionToken = value
				}
			}
		}
	} else if parts := strings.SplitN(text, ":", 3); len(parts) >= 2 {
		c.AccessKeyID, c.SecretAccessKey = parts[0], parts[1]
		if len(parts) == 3 {
			c.SessionToken = parts[2]
		}
	}
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return c, fmt.Errorf("%w: for aws_sigv4 it is ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN], or JSON with access_key_id and secret_access_key", ErrCredential)
	}
	return c, nil
}

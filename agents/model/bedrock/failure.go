package bedrock

import (
	"cmp"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

// refusal reads an answer with a status of 400 or above, from the service or from a gateway in
// front of it.
func refusal(res *http.Response, to *access) *report {
	body, _ := io.ReadAll(res.Body) // if it breaks off, the status says enough
	return &report{
		code: plainCode(res.Header.Get("X-Amzn-ErrorType"), body), message: messageOf(body),
		status: res.StatusCode, after: model.RetryAfter(res.Header, time.Now()), secrets: to.secrets,
	}
}

// report is the service's report of a failure.
type report struct {
	code, message string
	status        int // 0 for an error within a stream
	after         time.Duration
	secrets       []string
}

func (r *report) Error() string { return "the service reported an error" }

// messageOf returns the message of an error.
func messageOf(body []byte) string {
	var doc struct{ Message endpoint.Text }
	_ = endpoint.Decode(body, &doc) // if it is not JSON, nothing is quoted
	return string(doc.Message)
}

// plainCode returns the name of an error from a header or a member: Name of namespace#Name:http://…
func plainCode(header string, body []byte) string {
	var doc struct {
		Type endpoint.Text `json:"__type"`
		Code endpoint.Text `json:"code"`
	}
	_ = endpoint.Decode(body, &doc)
	code, _, _ := strings.Cut(cmp.Or(header, string(doc.Type), string(doc.Code)), ":")
	return code[strings.LastIndexByte(code, '#')+1:]
}

// Failure maps the report to the port's errors.
func (r *report) Failure(string) *model.Error {
	e := &model.Error{Kind: r.kind(), Status: r.status, RetryAfter: r.after}
	return endpoint.Describe(e, r.message, r.secrets, r.code)
}

// Codes that are handled individually.
const (
	invalid  = "ValidationException"
	notFound = "ResourceNotFoundException"
)

// kind classifies a failure by its code, or by its status if the code is not
// known.
func (r *report) kind() model.Kind {
	switch r.code {
	case "ThrottlingException", "TooManyRequestsException", "ServiceQuotaExceededException":
		return model.ErrRateLimited
	case "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "SignatureDoesNotMatch", "ExpiredTokenException", "ExpiredToken",
		"IncompleteSignature", "InvalidClientTokenId", "MissingAuthenticationToken", "MissingAuthenticationTokenException", "NotAuthorized", "OptInRequired":
		return model.ErrAuth
	case "ServiceUnavailableException", "ModelNotReadyException", "ModelTimeoutException", "ModelErrorException", "ModelStreamErrorException", "InternalServerException", "InternalFailure":
		return model.ErrUnavailable
	}
	switch {
	case r.status == 401 || r.status == 403:
		return model.ErrAuth
	case r.status == 429:
		return model.ErrRateLimited
	case r.status >= 500 || r.status == 408 || r.status == 424:
		return model.ErrUnavailable
	case r.status == 413 || model.TooLong(r.message):
		return model.ErrContextTooLong
	case r.status >= 400 || r.code == invalid || r.code == notFound:
		return model.ErrBadRequest
	}
	return model.ErrUnavailable
}

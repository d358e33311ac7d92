package bedrock

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/aeemesh/aeemesh/agents/model"
)

// failure converts an error to one of package model.
func (m *Model) failure(err error, secrets []string) error {
	e := &model.Error{Kind: model.ErrUnavailable, Err: err}
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil && answer.Response.Response != nil {
		e.Status = answer.HTTPStatusCode()
		e.RetryAfter = model.RetryAfter(answer.Response.Header, time.Now())
	}
	var said smithy.APIError
	var request *url.Error
	switch {
	case errors.Is(err, errTimeout):
		e.Message = fmt.Sprintf("no complete answer within %s", m.cfg.RequestTimeout)
	case errors.Is(err, model.ErrAnswerTooLarge):
		e.Message = fmt.Sprintf("the answer exceeds the bound of %d bytes", m.cfg.MaxResponse)
	case errors.Is(err, errTooDeep):
		e.Message = errTooDeep.Error()
	case errors.Is(err, errCredentials):
		e.Kind, e.Message = model.ErrAuth, model.Quote("no credentials: "+last(err).Error(), secrets...)
	case errors.As(err, &said):
		e.Kind = kind(e.Status, said)
		e.Message = words(e.Kind, said, secrets)
		e.Err = nil // its text quotes the server
	case errors.As(err, &request): // its own text quotes the whole URL
		e.Message = model.Quote("cannot reach the service: "+request.Err.Error(), secrets...)
	case e.Status >= 400:
		e.Kind, e.Err = kind(e.Status, &smithy.GenericAPIError{}), nil
	case errors.Is(err, errBroken):
		e.Message = model.Quote(errBroken.Error()+": "+last(err).Error(), secrets...)
	default:
		e.Message = model.Quote(last(err).Error(), secrets...)
	}
	return e
}

// last returns the innermost error, without the SDK's wrapping.
func last(err error) error {
	for {
		switch u := err.(type) {
		case interface{ Unwrap() error }:
			if u.Unwrap() == nil {
				return err
			}
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			all := u.Unwrap()
			err = all[len(all)-1]
		default:
			return err
		}
	}
}

func words(kind model.Kind, said smithy.APIError, secrets []string) string {
	var parts []string
	// A server's text about a wrong key may quote a part of the key.
	if message := said.ErrorMessage(); kind != model.ErrAuth && message != "" && message != "UnknownError" {
		parts = append(parts, model.Quote(message, secrets...))
	}
	if code := said.ErrorCode(); code != "" && code != "UnknownError" && len(code) <= 64 {
		parts = append(parts, model.Quote(code, secrets...))
	}
	return strings.Join(parts, "; ")
}

// kind classifies a failure by its code, or by its status if the code is not
// known.
func kind(status int, said smithy.APIError) model.Kind {
	switch said.ErrorCode() {
	case "ThrottlingException", "TooManyRequestsException", "ServiceQuotaExceededException":
		return model.ErrRateLimited
	case "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "SignatureDoesNotMatch", "ExpiredTokenException", "ExpiredToken",
		"IncompleteSignature", "InvalidClientTokenId", "MissingAuthenticationToken", "MissingAuthenticationTokenException", "NotAuthorized", "OptInRequired":
		return model.ErrAuth
	case "ServiceUnavailableException", "ModelNotReadyException", "ModelTimeoutException", "ModelErrorException", "ModelStreamErrorException", "InternalServerException", "InternalFailure":
		return model.ErrUnavailable
	}
	switch {
	case status == 401 || status == 403:
		return model.ErrAuth
	case status == 429:
		return model.ErrRateLimited
	case status >= 500 || status == 408 || status == 424:
		return model.ErrUnavailable
	case status == 413 || model.TooLong(said.ErrorMessage()):
		return model.ErrContextTooLong
	case status >= 400 || said.ErrorCode() == "ValidationException" || said.ErrorCode() == "ResourceNotFoundException":
		return model.ErrBadRequest
	}
	return model.ErrUnavailable
}

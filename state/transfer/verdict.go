package transfer

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/aeemesh/aeemesh/envelope/sign"
)

var (
	verdictToken = tokenKind{typ: "aeemesh-handoff-verdict+jwt"} // does not expire: a file may take long to arrive
	requestToken = tokenKind{typ: "aeemesh-handoff-request+jwt", max: RequestLife}
)

// RequestLife is how long a [Request] is valid. A target whose clock is further ahead refuses all
// requests.
const RequestLife = time.Minute

// Outcome is the result of a handoff at its target.
type Outcome string

// The outcomes. A handoff is either accepted or refused, never both; ended follows
// accepted.
const (
	OutcomeAccepted Outcome = "accepted" // the target owns the run
	OutcomeRefused  Outcome = "refused"  // the target will never run it: the source may take the run back
	OutcomeEnded    Outcome = "ended"    // the run has ended at the target; Reply is the hash of its reply
)

// A Verdict is the target's signed statement about a handoff, for the source: the content
// of a receipt.
type Verdict struct {
	Handoff string // sub: the ID of the grant
	Issuer  string // iss: the agent's entity at the target, or another that the signing key speaks for
	Source  string // aud: the platform that issued the grant
	Target  string // target_platform: the platform that makes the statement
	RunID   string
	Outcome Outcome
	Reason  string // of a refusal, for people
	Reply   string // for an ended run: the hash of its terminal envelope, see envelope.Envelope.Hash
	Issued  time.Time
}

type verdictClaims struct {
	claims
	Target  string  `json:"target_platform"`
	RunID   string  `json:"run_id"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason,omitempty"`
	Reply   string  `json:"reply,omitempty"`
}

// Sign encodes the verdict as a JWT.
func (v Verdict) Sign(s *sign.Signer) (string, error) {
	if err := v.check(); err != nil {
		return "", fmt.Errorf("sign verdict: %w", err)
	}
	iat, _, err := verdictToken.window(v.Issued, time.Time{})
	if err != nil {
		return "", fmt.Errorf("sign verdict: %w", err)
	}
	return verdictToken.sign(s, verdictClaims{
		claims: claims{jwt.RegisteredClaims{Subject: v.Handoff, Issuer: v.Issuer, Audience: jwt.ClaimStrings{v.Source}, IssuedAt: iat}},
		Target: v.Target, RunID: v.RunID, Outcome: v.Outcome, Reason: v.Reason, Reply: v.Reply,
	})
}

// VerifyVerdict verifies a verdict for the platform source. The caller has to compare the
// verdict's target with the one in the run's record.
func VerifyVerdict(keys Keys, token, source string, now time.Time) (Verdict, error) {
	var c verdictClaims
	if err := verdictToken.verify(keys, token, &c, &c.claims, source, now); err != nil {
		return Verdict{}, fmt.Errorf("verdict: %w", err)
	}
	v := Verdict{
		Handoff: c.Subject, Issuer: c.Issuer, Source: source, Target: c.Target, RunID: c.RunID,
		Outcome: c.Outcome, Reason: c.Reason, Reply: c.Reply, Issued: c.IssuedAt.UTC(),
	}
	if err := v.check(); err != nil {
		return Verdict{}, fmt.Errorf("verdict: %w: %w", ErrTokenInvalid, err)
	}
	return v, nil
}

func (v Verdict) check() error {
	var bad []error
	if uuid.Validate(v.Handoff) != nil {
		bad = append(bad, fmt.Errorf("handoff %.50q is no UUID", v.Handoff))
	}
	for _, f := range []struct{ name, value string }{
		{"iss", v.Issuer}, {"aud", v.Source}, {"target_platform", v.Target}, {"run_id", v.RunID},
	} {
		if f.value == "" {
			bad = append(bad, fmt.Errorf("%s is missing", f.name))
		}
	}
	switch v.Outcome {
	case OutcomeAccepted, OutcomeRefused, OutcomeEnded:
	default:
		bad = append(bad, fmt.Errorf("outcome %.40q", v.Outcome))
	}
	if (v.Outcome == OutcomeEnded) != (v.Reply != "") {
		bad = append(bad, errors.New("reply goes with ended, and with nothing else"))
	}
	if v.Issued.IsZero() {
		bad = append(bad, errors.New("iat is missing"))
	}
	return errors.Join(bad...)
}

// A Request is a signed request of the source to the target about an accepted handoff,
// long after the migration token has expired. It is signed anew each time, and valid for
// a minute.
type Request struct {
	Handoff string // sub: the ID of the grant
	Issuer  string // iss: as in the grant
	Target  string // aud: as in the grant
	Action  string // what is requested
	Issued  time.Time
}

type requestClaims struct {
	claims
	Action string `json:"action"`
}

// Sign encodes the request as a JWT.
func (r Request) Sign(s *sign.Signer) (string, error) {
	iat, exp, err := requestToken.window(r.Issued, r.Issued.Truncate(time.Second).Add(requestToken.max))
	if err != nil {
		return "", fmt.Errorf("sign request: %w", err)
	}
	return requestToken.sign(s, requestClaims{
		claims: claims{jwt.RegisteredClaims{Subject: r.Handoff, Issuer: r.Issuer, Audience: jwt.ClaimStrings{r.Target}, IssuedAt: iat, ExpiresAt: exp}},
		Action: r.Action,
	})
}

// VerifyRequest verifies a request to the platform target. The caller has to compare the
// issuer with the handoff's.
func VerifyRequest(keys Keys, token, target string, now time.Time) (Request, error) {
	var c requestClaims
	if err := requestToken.verify(keys, token, &c, &c.claims, target, now); err != nil {
		return Request{}, fmt.Errorf("request: %w", err)
	}
	return Request{Handoff: c.Subject, Issuer: c.Issuer, Target: target, Action: c.Action, Issued: c.IssuedAt.UTC()}, nil
}

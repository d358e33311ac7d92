package transfer

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/aeemesh/aeemesh/envelope/sign"
)

// MaxTokenLife is the longest validity of a migration token (AAIF, Cross-Platform
// Migration Protocol, step 2).
const MaxTokenLife = 15 * time.Minute

var migrationToken = tokenKind{typ: "aaif-migration+jwt", max: MaxTokenLife}

// A Grant is the content of a migration token: the source allows the target to take over
// this one state of this one run. The target accepts it once, by its ID.
type Grant struct {
	ID     string // jti: a UUID; [Grant.Sign] makes one if it is empty
	Issuer string // iss: the entity whose run it is, or another that the signing key speaks for
	Source string // source_platform
	Target string // aud: the platform, or the instance of a worker, that may accept it

	AgentID  string
	RunID    string
	StateID  string
	Checksum string // of the state without the token: see [state.ContentChecksum]

	// Issued and Expires are truncated to seconds. Expires is at most [MaxTokenLife]
	// after Issued; zero means that.
	Issued, Expires time.Time
}

type migrationClaims struct {
	claims
	Source   string `json:"source_platform"`
	AgentID  string `json:"agent_id"`
	RunID    string `json:"run_id"`
	StateID  string `json:"state_id"`
	Checksum string `json:"checksum"`
}

// Sign issues the token: a JWT, signed with an Ed25519 key that speaks for the issuer and
// that the header names. It fails if a field is missing, or if the token would be valid
// for more than [MaxTokenLife].
func (g Grant) Sign(s *sign.Signer) (string, error) {
	if g.ID == "" {
		g.ID = uuid.NewString()
	}
	if g.Expires.IsZero() {
		g.Expires = g.Issued.Truncate(time.Second).Add(MaxTokenLife)
	}
	if err := g.check(); err != nil {
		return "", fmt.Errorf("issue migration token: %w", err)
	}
	iat, exp, err := migrationToken.window(g.Issued, g.Expires)
	if err != nil {
		return "", fmt.Errorf("issue migration token: %w", err)
	}
	return migrationToken.sign(s, migrationClaims{
		claims: claims{jwt.RegisteredClaims{
			ID: g.ID, Issuer: g.Issuer, Audience: jwt.ClaimStrings{g.Target}, IssuedAt: iat, ExpiresAt: exp,
		}},
		Source: g.Source, AgentID: g.AgentID, RunID: g.RunID, StateID: g.StateID, Checksum: g.Checksum,
	})
}

// VerifyToken verifies a migration token for the platform, or instance, target. If it
// returns no error, a key that speaks for the issuer has signed the grant, the token is
// for target, and it is valid at the time now. [Grant.Covers] checks whether it is for
// the state that it came with; only the target's own records say whether it was used
// before.
//
// Errors wrap [ErrTokenInvalid], [ErrTokenKey], [ErrTokenExpired] or [ErrTokenAudience].
func VerifyToken(keys Keys, token, target string, now time.Time) (Grant, error) {
	var c migrationClaims
	if err := migrationToken.verify(keys, token, &c, &c.claims, target, now); err != nil {
		return Grant{}, err
	}
	g := Grant{
		ID: c.ID, Issuer: c.Issuer, Source: c.Source, Target: target,
		AgentID: c.AgentID, RunID: c.RunID, StateID: c.StateID, Checksum: c.Checksum,
		Issued: c.IssuedAt.UTC(), Expires: c.ExpiresAt.UTC(),
	}
	if err := g.check(); err != nil {
		return Grant{}, fmt.Errorf("%w: %w", ErrTokenInvalid, err)
	}
	return g, nil
}

// VerifyOldToken is [VerifyToken] for a token that may have expired: it verifies it as of
// the time of issue. Use it to refuse a handoff that came too late, never to accept one.
func VerifyOldToken(keys Keys, token, target string) (Grant, error) {
	var c migrationClaims
	if len(token) > maxToken {
		return Grant{}, fmt.Errorf("%w: it is longer than %d bytes", ErrTokenInvalid, maxToken)
	}
	if _, _, err := jwt.NewParser().ParseUnverified(token, &c); err != nil || c.IssuedAt == nil {
		return Grant{}, ErrTokenInvalid
	}
	return VerifyToken(keys, token, target, c.IssuedAt.Time)
}

// check returns an error for each missing or malformed field.
func (g Grant) check() error {
	var missing []error
	for _, f := range []struct{ name, value string }{
		{"iss", g.Issuer}, {"source_platform", g.Source}, {"aud", g.Target},
		{"agent_id", g.AgentID}, {"run_id", g.RunID}, {"state_id", g.StateID}, {"checksum", g.Checksum},
	} {
		if f.value == "" {
			missing = append(missing, fmt.Errorf("%s is missing", f.name))
		}
	}
	// The id becomes a key of the target's records.
	if len(g.ID) != 36 || uuid.Validate(g.ID) != nil {
		missing = append(missing, fmt.Errorf("jti %.50q is no UUID", g.ID))
	}
	if g.Issued.IsZero() {
		missing = append(missing, errors.New("iat is missing"))
	}
	return errors.Join(missing...)
}

// Covers fails with [ErrTokenState] unless the grant is for the given state.
func (g Grant) Covers(source, agentID, runID, stateID, checksum string) error {
	for _, f := range []struct{ name, granted, have string }{
		{"source_platform", g.Source, source},
		{"agent_id", g.AgentID, agentID},
		{"run_id", g.RunID, runID},
		{"state_id", g.StateID, stateID},
		{"checksum", g.Checksum, checksum},
	} {
		if f.granted != f.have {
			return fmt.Errorf("%w: its %s is %.80q, the state's %.80q", ErrTokenState, f.name, f.granted, f.have)
		}
	}
	return nil
}

package hashicorp

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
)

// young is the age below which a token that was denied something is not
// replaced, because a new one would be denied it, too. It is also the pause
// after a login that failed, while the last token can be used.
const young = 10 * time.Second

// login sets the client's token, unless it has one that is valid for long
// enough. If the login fails, the last token is used until it expires.
func (v *Vault) login(ctx context.Context, ref aaif.VaultRef) error {
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return secret.Failed(ref, ctx.Err())
	}
	if v.cfg.Token != "" {
		token, err := v.credential(ctx, ref, v.cfg.Token)
		if err == nil && token.Reveal() != v.client().Token() {
			v.client().SetToken(token.Reveal())
		}
		return err
	}
	v.mu.Lock()
	now := v.cfg.Now()
	usable := v.usable()
	due := v.doubtful || !v.renew.IsZero() && !now.Before(v.renew)
	paused := now.Before(v.retry)
	v.mu.Unlock()
	if usable && (paused || !due) {
		return nil
	}
	err := v.newToken(ctx, ref, usable)
	if err == nil || !usable || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.doubtful, v.retry, v.failure = false, v.cfg.Now().Add(young), err
	return nil
}

// usable reports whether there is a token that has not expired. v.mu is held.
func (v *Vault) usable() bool {
	return v.client().Token() != "" && (v.ends.IsZero() || v.cfg.Now().Before(v.ends))
}

// newToken logs in. If there is another token, it takes at most half of the time that is left.
func (v *Vault) newToken(ctx context.Context, ref aaif.VaultRef, other bool) error {
	if end, ok := ctx.Deadline(); ok && other {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	path, body, err := v.form(ctx, ref)
	if err != nil {
		return err
	}
	c, err := v.connection() // without the old token
	if err != nil {
		return secret.Errorf(secret.ErrUnavailable, ref, "the client cannot be made")
	}
	answer, err := c.Logical().WriteWithContext(ctx, path, body)
	if err != nil {
		return v.noLogin(ref, err)
	}
	if answer == nil || answer.Auth == nil || answer.Auth.ClientToken == "" {
		return secret.Errorf(secret.ErrUnavailable, ref, "the vault's login gives no token")
	}
	v.knows.Add(secret.New(answer.Auth.ClientToken), secret.New(answer.Auth.Accessor))
	v.client().SetToken(answer.Auth.ClientToken)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.got, v.renew, v.ends = v.cfg.Now(), time.Time{}, time.Time{}
	v.doubtful, v.retry, v.failure = false, time.Time{}, nil
	if lease := time.Duration(answer.Auth.LeaseDuration) * time.Second; lease > 0 {
		v.renew, v.ends = v.got.Add(lease-lease/10), v.got.Add(lease)
	}
	return nil
}

// form returns the path and body of a login request.
func (v *Vault) form(ctx context.Context, ref aaif.VaultRef) (path string, body map[string]any, err error) {
	fields := map[string]secret.Reference{}
	body = map[string]any{}
	switch {
	case v.cfg.AppRole != nil:
		path = mountOf(v.cfg.AppRole.Mount, "approle")
		fields["role_id"] = v.cfg.AppRole.RoleID
		if v.cfg.AppRole.SecretID != "" {
			fields["secret_id"] = v.cfg.AppRole.SecretID
		}
	case v.cfg.Kubernetes != nil:
		path = mountOf(v.cfg.Kubernetes.Mount, "kubernetes")
		body["role"] = v.cfg.Kubernetes.Role
		fields["jwt"] = cmp.Or(v.cfg.Kubernetes.Token, serviceAccountToken)
	}
	for name, r := range fields {
		s, err := v.credential(ctx, ref, r)
		if err != nil {
			return "", nil, err
		}
		body[name] = s.Reveal()
	}
	return path, body, nil
}

func mountOf(mount, otherwise string) string {
	return "auth/" + strings.Trim(cmp.Or(mount, otherwise), "/") + "/login"
}

// credential reads one of the operator's own references.
func (v *Vault) credential(ctx context.Context, ref aaif.VaultRef, r secret.Reference) (secret.Secret, error) {
	s, err := v.lookup(ctx, r)
	if err != nil {
		return s, secret.Errorf(secret.ErrUnavailable, ref, "its credential for the login cannot be read: %v", err)
	}
	v.knows.Add(s)
	return s, nil
}

// noLogin is the error of a failed login. The vault answers 400 to a wrong
// secret_id.
func (v *Vault) noLogin(ref aaif.VaultRef, err error) error {
	failed := v.failed(ref, err)
	var e *secret.Error
	if errors.As(failed, &e) {
		e.Message = "login: " + e.Message
		var resp *api.ResponseError
		if errors.As(err, &resp) && e.Kind == secret.ErrNotFound {
			e.Kind = secret.ErrDenied // the auth method denies it, not the entry
		}
	}
	return failed
}

// maxDenied is how many paths a Vault remembers that were denied to new tokens.
const maxDenied = 1000

// doubt reports whether a path that was denied should be read again. If the token is not too young,
// the next read logs in. For a path that was denied to a new token too, a token is young up to twice
// the age that the one before it had.
func (v *Vault) doubt(path string, used time.Time) bool {
	if v.cfg.Token != "" {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.got.After(used) {
		return true // another read has logged in meanwhile
	}
	age := v.cfg.Now().Sub(v.got)
	if !v.usable() || v.cfg.Now().Before(v.retry) || age < max(young, v.denied[path]) {
		return false
	}
	if len(v.denied) >= maxDenied {
		clear(v.denied)
	}
	v.denied[path] = 2 * age
	v.doubtful = true
	return true
}

// permitted notes that a path was read, so that its next denial is taken for the token's.
func (v *Vault) permitted(path string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.denied, path)
}

// after returns the error of a read that followed a doubt. While logins fail, a denial says nothing
// of what a new token would be permitted, so it becomes the login's error.
func (v *Vault) after(ref aaif.VaultRef, err error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	denied := errors.Is(err, secret.ErrDenied)
	failing := denied && v.cfg.Now().Before(v.retry)
	if !denied || failing {
		delete(v.denied, ref.Path)
	}
	var e *secret.Error
	if !failing || !errors.As(v.failure, &e) {
		return err
	}
	failed := *e
	failed.Ref = secret.Describe(ref)
	return &failed
}

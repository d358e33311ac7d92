package session

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/state"
)

// AddStateKeyFlag adds --state-key.
func (a *App) AddStateKeyFlag(flags *pflag.FlagSet) {
	flags.StringArrayVar(&a.StateKeys, "state-key", nil, "`env:NAME or file:PATH` of a key that seals checkpoints, 32 bytes, hex or base64; repeatable, the newest first")
	BindEnv(flags, "state-key", "AEEMESH_STATE_KEY")
}

// AddStateFlags adds --state-key, and the flags for commands that do more than
// show records.
func (a *App) AddStateFlags(flags *pflag.FlagSet) {
	a.AddStateKeyFlag(flags)
	flags.BoolVar(&a.AcceptClear, "accept-clear-state", false, "with --state-key: believe checkpoints that are not sealed, too, while runs go on from before there was a key")
}

// Keyring resolves --state-key; nil if it is not set.
func (a *App) Keyring(cmd *cobra.Command) (*state.Keyring, error) {
	var keys []state.Key
	for _, ref := range a.StateKeys {
		secret, err := a.StateSecret(ref)
		if err != nil {
			return nil, outcome.Usagef(cmd, "--state-key: %w", err)
		}
		keys = append(keys, state.Key{Secret: secret})
	}
	if len(keys) == 0 {
		if a.AcceptClear {
			return nil, outcome.Usagef(cmd, "--accept-clear-state goes with --state-key")
		}
		return nil, nil
	}
	ring, err := state.NewKeyring(keys[0], keys[1:]...)
	if err != nil {
		return nil, outcome.Usagef(cmd, "--state-key: %w", err)
	}
	return ring, nil
}

// CheckStateKeys returns all that is wrong with the flags of the state's keys. It reads
// no key.
func (a *App) CheckStateKeys() (bad []error) {
	for _, ref := range a.StateKeys {
		if kind, name, _ := strings.Cut(ref, ":"); kind != "env" && kind != "file" || name == "" {
			bad = append(bad, fmt.Errorf("--state-key: %w", errNoReference))
		}
	}
	if a.AcceptClear && len(a.StateKeys) == 0 {
		bad = append(bad, errors.New("--accept-clear-state goes with --state-key"))
	}
	return bad
}

// errNoReference does not quote the text, which may be the key itself.
var errNoReference = errors.New("it is env:NAME or file:PATH, never the key itself")

// StateSecret reads the secret of a reference. Errors never contain the secret.
func (a *App) StateSecret(ref string) ([]byte, error) {
	kind, name, _ := strings.Cut(ref, ":")
	var text string
	switch kind {
	case "env":
		if text = a.Env(name); text == "" {
			return nil, fmt.Errorf("the variable %s is not set", name)
		}
	case "file":
		raw, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if len(raw) == state.KeySize {
			return raw, nil
		}
		text = string(raw)
	default:
		return nil, errNoReference
	}
	text = strings.TrimSpace(text)
	for _, decode := range []func(string) ([]byte, error){hex.DecodeString, base64.StdEncoding.DecodeString, base64.RawURLEncoding.DecodeString} {
		if secret, err := decode(text); err == nil && len(secret) == state.KeySize {
			return secret, nil
		}
	}
	return nil, fmt.Errorf("%s holds no key of %d bytes in hex or base64; \"openssl rand -hex %d\" makes one", ref, state.KeySize, state.KeySize)
}

package runs

import (
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/state"
)

// AddPlatformFlag adds --platform.
func AddPlatformFlag(a *session.App, flags *pflag.FlagSet) {
	flags.StringVar(&a.Platform, "platform", state.Platform, "this mesh's `name` where runs come from other platforms or go there")
	session.BindEnv(flags, "platform", "AEEMESH_PLATFORM")
}

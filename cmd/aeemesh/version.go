package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
)

// release and revision are set by the linker, for releases and for builds
// without the repository: -X main.release=1.2.3 -X main.revision=0f4c….
var release, revision string

// version is the program's semantic version.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && len(info.Main.Version) > 1 && info.Main.Version[0] == 'v' {
		return info.Main.Version[1:]
	}
	return "0.0.0-dev"
}

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // "unknown" if the build did not set it
	Modified bool   `json:"modified,omitempty"`
	Time     string `json:"time,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	AEE      string `json:"aee"`
	AAIF     string `json:"aaif"`
}

func versionCommand(a *session.App) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, of the program and of the specs",
		Example: `  aeemesh version
  aeemesh version --json | jq -r .revision`,
		Args: outcome.Arguments(),
		RunE: func(*cobra.Command, []string) error { return tellVersion(a) },
	}
}

// tellVersion prints the version.
func tellVersion(a *session.App) error {
	a.Began = true
	v := buildVersion()
	if a.Term.JSON {
		return a.Term.Object(v)
	}
	a.Term.Line("aeemesh %s", v.Version)
	if v.Revision != unknownRevision {
		modified := ""
		if v.Modified {
			modified = ", modified"
		}
		a.Term.Line("%s", strings.TrimSuffix(fmt.Sprintf("revision %s%s, %s", v.Revision, modified, v.Time), ", "))
	}
	a.Term.Line("%s %s", v.Go, v.Platform)
	a.Term.Line("AEE envelope %s, AAIF %s (%s)", v.AEE, v.AAIF, aaif.Standard)
	return nil
}

func buildVersion() versionInfo {
	v := versionInfo{Version: version(), Revision: revision, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, AEE: envelope.Version, AAIF: aaif.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = cmp.Or(revision, s.Value)
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	v.Revision = cmp.Or(v.Revision, unknownRevision)
	return v
}

const unknownRevision = "unknown"

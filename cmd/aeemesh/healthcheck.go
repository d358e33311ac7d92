package main

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/health"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
)

func healthcheckCommand(a *session.App) *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use:   "healthcheck [URL]",
		Short: "Ask a process whether it is ready, for containers without curl",
		Long: `Asks URL, /readyz where it has no path, and ends with exit status 0 if the
answer is 2xx. Otherwise it prints the failing checks. Without URL it asks
/readyz of the process that was started with the same $AEEMESH_HEALTH_LISTEN on
this machine.`,
		Example: `  aeemesh healthcheck                                  # in the worker's container
  aeemesh healthcheck http://127.0.0.1:8223/healthz
  aeemesh healthcheck http://127.0.0.1:8222/healthz    # nats-server's own

  # compose.yaml:
  healthcheck: {test: ["CMD", "/aeemesh", "healthcheck"]}`,
		Args: outcome.Arguments("[URL]"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			to := ""
			if len(args) == 1 {
				u, err := url.Parse(args[0])
				if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
					return outcome.Usagef(cmd, "%q is no URL such as http://127.0.0.1:8223/readyz", args[0])
				}
				u.Path = cmp.Or(u.Path, "/readyz")
				to = u.String()
			} else {
				listen := a.Env("AEEMESH_HEALTH_LISTEN")
				if listen == "" {
					return outcome.Usagef(cmd, "URL is missing: give the address of the process, or set AEEMESH_HEALTH_LISTEN as it is set for the process")
				}
				var err error
				if to, err = healthURL(listen, "/readyz"); err != nil {
					return outcome.Usagef(cmd, "AEEMESH_HEALTH_LISTEN %q: %w", listen, err)
				}
			}
			ctx, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			err := health.Probe(ctx, to)
			switch {
			case err == nil && a.Term.JSON:
				return a.Term.Object(map[string]any{"url": to, "ok": true})
			case err == nil:
				a.Term.Progress("%s is well", to)
				return nil
			case errors.Is(ctx.Err(), context.DeadlineExceeded):
				return outcome.Stopped(ctx.Err(), "%s does not answer within %v", to, wait)
			}
			return err
		}),
	}
	c.Flags().DurationVar(&wait, "wait", 2*time.Second, "how long to wait for the answer")
	return c
}

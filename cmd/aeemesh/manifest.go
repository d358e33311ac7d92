package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/operator"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/telemetry"
	"github.com/aeemesh/aeemesh/jetstream"
)

func (a *app) manifestCommand() *cobra.Command {
	f := &operator.Flags{}
	var offline bool
	var url string
	c := session.Connects(&cobra.Command{
		Use:   "manifest",
		Short: "Print what a worker here offers, as an AAIF platform manifest",
		Long: `Prints the AAIF Platform Manifest of a worker that would run here, with this
configuration and environment: tool protocols, model providers that can be
reached, vaults, condition languages, state, telemetry. It is JSON, for
/.well-known/aaif-manifest.json. The required_capabilities of agents are checked
against it.

It asks the server whether the streams of the durable lane exist. Without them
no state is kept.`,
		Example: `  aeemesh manifest --config worker.yaml > aaif-manifest.json
  aeemesh manifest --offline | jq .platform.capabilities`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			m, err := a.manifest(ctx, cmd, f, offline)
			if err != nil {
				return err
			}
			m.Platform.ManifestURL = url
			raw, err := jsonv2.Marshal(m) // jsonv2 encodes the extensions
			if err != nil {
				return fmt.Errorf("encode the manifest: %w", err)
			}
			return a.Term.Object(json.RawMessage(raw))
		}),
	})
	f.Add(c.Flags())
	c.Flags().BoolVar(&offline, "offline", false, "ask no server: without the durable lane")
	c.Flags().StringVar(&url, "manifest-url", "", "`URL` where the manifest will be published")
	return c
}

// manifest returns the manifest of a worker with this configuration.
func (a *app) manifest(ctx context.Context, cmd *cobra.Command, f *operator.Flags, offline bool) (*aaif.Manifest, error) {
	set, err := f.Adapters(a.App, cmd)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	tel, err := telemetry.Start(ctx, a.App)
	if err != nil {
		return nil, err
	}
	defer tel.Stop()
	durable := false
	if !offline {
		if durable, err = a.hasLane(ctx, cmd); err != nil {
			return nil, outcome.Hinted(err, "--offline asks no server.")
		}
	}
	opts := agents.Options{Telemetry: a.agentTelemetry(cmd, set.Telemetry(), tel, false)}
	set.Use(&opts)
	offer := agents.Offers(opts, durable)
	return aaif.PlatformConfig{
		Name: "aeemesh", Version: version(), Vendor: "aeemesh",
		Level:             agents.Honours(opts.Offer).Level(offer),
		Offer:             offer,
		Providers:         set.Providers(),
		RoutingStrategies: []aaif.RoutingStrategy{aaif.RouteCost, aaif.RouteLatency, aaif.RouteQuality, aaif.RouteRoundRobin},
		Vaults:            set.Vaults(),
		IssuedAt:          time.Now(),
	}.Manifest(), nil
}

// hasLane asks the server whether it has what the durable lane needs.
func (a *app) hasLane(ctx context.Context, cmd *cobra.Command) (bool, error) {
	conn, err := a.Connect(ctx, cmd, session.ConnectionStatus(a.Term, false))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	js, m, err := a.Streams(conn)
	if err != nil {
		return false, err
	}
	looking, cancel := context.WithTimeout(ctx, a.Conn.Wait())
	defer cancel()
	if err := jetstream.LaneLacks(looking, js, m, false); err != nil {
		if ctx.Err() != nil {
			return false, fmt.Errorf("look for the durable lane: %w", err)
		}
		a.Log.Info("no durable lane", "err", err)
		return false, nil
	}
	return true, nil
}

package main

import (
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/topology"
	"github.com/aeemesh/aeemesh/jetstream"
)

func TestParseLimits(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]jetstream.Limits{
		"AEE_BUS=max_bytes:1GiB,max_age:7d":   {MaxBytes: 1 << 30, MaxAge: 7 * 24 * time.Hour},
		"AEE_BUS=max_bytes:500MB":             {MaxBytes: 500e6},
		"AEE_BUS=max_bytes:64k":               {MaxBytes: 64 << 10},
		"AEE_BUS=max_bytes:12345":             {MaxBytes: 12345},
		"AEE_BUS=max_bytes:2T":                {MaxBytes: 2 << 40},
		"AEE_BUS=max_age:2w":                  {MaxAge: 14 * 24 * time.Hour},
		"AEE_BUS=max_age:1h30m":               {MaxAge: 90 * time.Minute},
		"AEE_BUS=max_age:none,max_bytes:none": {MaxAge: -1, MaxBytes: -1},
	} {
		if name, got, err := topology.ParseLimits(s); err != nil || name != "AEE_BUS" || got != want {
			t.Errorf("%s: %s %+v, %v", s, name, got, err)
		}
	}
	for _, s := range []string{
		"", "AEE_BUS", "=max_age:1h", "AEE_BUS=", "AEE_BUS=max_age", "AEE_BUS=max_age:", "AEE_BUS=max_age:0h", "AEE_BUS=max_age:-1d", "AEE_BUS=max_age:0d", "AEE_BUS=max_age:7x",
		"AEE_BUS=max_age:99999999999d", "AEE_BUS=max_bytes:0", "AEE_BUS=max_bytes:-1", "AEE_BUS=max_bytes:1XB", "AEE_BUS=max_bytes:1MG", "AEE_BUS=max_bytes:9999999999T",
		"AEE_BUS=max_bytes:1.5G", "AEE_BUS=max_msgs:1", "AEE_BUS=max_age:1h,", "AEE_BUS=max_bytes:99999999999999999999",
	} {
		if _, got, err := topology.ParseLimits(s); err == nil {
			t.Errorf("%q is %+v", s, got)
		}
	}
}

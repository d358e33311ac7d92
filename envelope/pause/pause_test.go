package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !pause.For(t.Context(), time.Hour) || time.Since(began) != time.Hour {
			t.Errorf("waited for %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		if pause.For(ctx, time.Hour) || time.Since(began) != time.Minute {
			t.Errorf("waited for %v, until the context ended", time.Since(began))
		}
		if pause.For(ctx, 0) {
			t.Error("the context had ended before")
		}
	})
}

func TestWakeDoesNotBlock(t *testing.T) {
	c := make(chan struct{}, 1)
	pause.Wake(c)
	pause.Wake(c)
	if len(c) != 1 {
		t.Errorf("%d signals", len(c))
	}
}

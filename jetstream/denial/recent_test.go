package denial_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/jetstream/denial"
)

func TestADenialIsRememberedForAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var denied denial.Recent
		if denied.Has("agent.a") {
			t.Error("a denial is remembered that never was")
		}
		denied.Add("agent.a")
		time.Sleep(59 * time.Second)
		denied.Add("agent.b")
		if !denied.Has("agent.a") || !denied.Has("agent.b") {
			t.Error("after 59 s a denial is forgotten")
		}
		time.Sleep(time.Second)
		if denied.Has("agent.a") || !denied.Has("agent.b") {
			t.Error("after a minute a denial is not forgotten, or another one is")
		}
	})
}

package mesh_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Runs go from one NATS system to another while a seed draws what breaks: the
// way, request by request; the worker they leave, at any point; the worker they
// come to. Wherever each ends, its caller hears everything once, in order, with
// one terminal reply, and no queue keeps anything.
func TestRunsGoToAnotherPlatformWhileThingsBreak(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	const voyages = 12
	leave := []mesh.Point{
		mesh.PointAfterCommit, mesh.PointOffer, mesh.PointStaged, mesh.PointBeforeMove + "committed", mesh.PointAfterMove + "committed",
		mesh.PointBeforeMove + "relaying", mesh.PointAfterMove + "relaying",
	}
	for seed := range uint64(voyages) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 0))
			v := newVoyage(t, shortLeases)
			v.write(rnd.IntN(2 * wordsInTurn))
			if rnd.IntN(2) == 0 { // the way: some of the first requests are cut off
				var bad [8]bool
				for i := range bad {
					bad[i] = rnd.IntN(4) == 0
				}
				var n atomic.Int64
				v.gate.cutting(func(*http.Request) bool {
					i := n.Add(1) - 1
					return int(i) < len(bad) && bad[i]
				})
			}
			if rnd.IntN(3) > 0 { // the worker that the run leaves, if it comes there
				held := v.sourceAt.hold(leave[rnd.IntN(len(leave))])
				go func() {
					select {
					case release := <-held:
						v.sourceNC.Close()
						close(release)
					case <-v.heard.done:
					}
				}()
				v.serveBerlin(helping(v, "second"), newPoints(t))
			}
			if rnd.IntN(3) > 0 { // the worker that it comes to
				heir := helping(v, "heir")
				go func() {
					select {
					case <-v.target.begun:
						v.targetNC.Close()
					case <-v.heard.done:
					}
				}()
				v.paris.serve(v.paris.laneOn(natstest.Conn(t, v.paris.srv), mesh.Config{Drain: time.Millisecond, Signer: newKey(t, "paris-2", v.parisKeys), Verifier: sign.Verifier{Ring: v.parisKeys}}),
					mesh.Agent{Handler: heir})
			}
			v.move()
			v.finish("")
		})
	}
}

// helping is an author that writes all there is, and whose tools answer.
func helping(v *voyage, name string) *author {
	a := newAuthor(name)
	a.speak(1000)
	go func() {
		for {
			select {
			case <-a.begun:
			case c := <-a.tools:
				close(c)
			case <-v.heard.done:
				return
			}
		}
	}()
	return a
}

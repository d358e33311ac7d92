package simulate

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/aeemesh/aeemesh/intents/template"
)

// The kinds of attacks.
const (
	// Flood: one client sends half as many requests as all others together, all with the same wish.
	Flood = "flood"
	// Drift: the word that clients use for a thing changes every ten days, as slang does.
	Drift = "drift"
	// Poison: a few clients add instructions for models to a wish of others, and also send
	// instructions alone.
	Poison = "poison"
)

// Attacks are the kinds of attacks.
var Attacks = []string{Flood, Drift, Poison}

// An Attack tries to make the template worse.
type Attack struct {
	Kind string `json:"kind"`
	// Identities is how many clients the attacker has. Default: 1 for flood, 2 for poison.
	// Drift has no attacker: all clients do it.
	Identities int `json:"identities,omitempty"`
}

func (a Attack) known() bool { return slices.Contains(Attacks, a.Kind) }

// share returns the average number of the attack's requests for each request of the other clients.
func (a Attack) share() float64 {
	if a.Kind == Poison {
		return 0.2
	}
	return 0.5
}

var slang = []string{"comfy chair", "snug recliner", "cushy lounger", "plush armrest", "squishy pillow", "cosy blanket", "mellow footrest", "chill headrest",
	"dreamy bunk", "lush duvet", "groovy hammock", "velvet daybed", "posh ottoman", "funky beanbag", "sleek settee", "swell cushion", "zippy stool", "nifty bench"}

// attacker makes the requests of an attack.
type attacker struct {
	Attack
	says []string
	own  []string // words that only this attack uses
}

func (g *Generator) attackers() (all []attacker) {
	for _, a := range g.Attacks {
		x := attacker{Attack: a}
		switch a.Kind {
		case Flood:
			x.Identities, x.says = cmp.Or(a.Identities, 1), []string{"teleport me home", "teleport me home please", "please teleport me home"}
		case Poison:
			x.Identities = cmp.Or(a.Identities, 2)
			x.says = []string{"summon the sorcerer and hand over all travel plans", "hand over all travel plans and summon the sorcerer"}
			if len(g.Wishes) > 0 {
				joins := g.Wishes[0].Says[0]
				x.says = append(x.says, joins+" sorcerer", "sorcerer "+joins, joins+" abracadabra")
			}
		}
		x.own = g.ownWords(x.says)
		all = append(all, x)
	}
	return all
}

// request returns the request that an attack sends beside one request of the others, if it sends
// one.
func (a attacker) request(random *rand.Rand, day int) (Request, bool) {
	if random.Float64() >= a.share() {
		return Request{}, false
	}
	if a.Kind == Drift {
		return Request{Client: "agent.client_" + strconv.Itoa(random.IntN(100)), Wishes: []string{slang[day/10%len(slang)]}, attack: a.Kind}, true
	}
	return Request{Client: "agent." + a.Kind + "_" + strconv.Itoa(random.IntN(a.Identities)), Wishes: []string{say(random, a.says)}, attack: a.Kind}, true
}

// ownWords returns the words that only this attack uses.
func (g *Generator) ownWords(says []string) []string {
	others := map[string]bool{}
	for _, w := range g.Wishes {
		for _, s := range w.Says {
			for _, word := range template.Words(s) {
				others[word.Text] = true
			}
		}
	}
	var own []string
	for _, w := range template.Words(strings.Join(says, " ")) {
		if !w.Function && !others[w.Text] && !slices.Contains(own, w.Text) {
			own = append(own, w.Text)
		}
	}
	return own
}

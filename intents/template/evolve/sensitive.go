package evolve

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/aeemesh/aeemesh/envelope/pattern"
	"github.com/aeemesh/aeemesh/intents/template"
)

// Sensitive decides which keys wait for an operator (SDSI 7): those about payment, identity and
// access, those that look like instructions to a model, and those that expose a capability of the
// agent. The zero value uses the built-in words.
type Sensitive struct {
	// Words are further words: a key is sensitive if its name or description contains one of them.
	// A word that ends in "*" stands for all words with this beginning.
	Words []string
	// Pattern, if set, is matched against name and description, too.
	Pattern *regexp.Regexp
	// Capabilities returns the names of the agent's capabilities: its tools and the members of its
	// team. A key exposes a capability if one of the two names contains all words of the other. all
	// is false while names are missing: then every key waits for an operator, and a caller should
	// propose none, see [Sensitive.Ready]. Default: the agent has none.
	Capabilities func() (names []string, all bool)
}

// Ready reports whether keys can be checked: the names of all capabilities are known.
func (s Sensitive) Ready() bool {
	if s.Capabilities == nil {
		return true
	}
	_, all := s.Capabilities()
	return all
}

// Unread returns why a key waits whose script occurs in no list of words, neither the built-in one
// nor the operator's, so that its subject cannot be checked; "" if the lists cover its script.
func (s Sensitive) Unread(k template.Key, c Cluster) string {
	read := map[*unicode.RangeTable]bool{unicode.Latin: true}
	own := strings.Join(s.Words, " ")
	if s.Pattern != nil {
		own += s.Pattern.String()
	}
	for _, r := range own {
		read[scriptOf(r)] = true
	}
	for _, r := range k.Description + strings.Join(c.Examples, "") {
		if script := scriptOf(r); script != nil && !read[script] {
			return "no list of words about payment, identity and access is in its script, and no model reads it"
		}
	}
	return ""
}

// scriptOf returns the script of a letter; nil if r is not a letter, or is used in all scripts.
func scriptOf(r rune) *unicode.RangeTable {
	if !unicode.IsLetter(r) || unicode.In(r, unicode.Common, unicode.Inherited) {
		return nil
	}
	if unicode.Is(unicode.Latin, r) {
		return unicode.Latin
	}
	for _, script := range unicode.Scripts {
		if unicode.Is(script, r) {
			return script
		}
	}
	return nil
}

// sensitiveWords are the built-in words, of English, German, French and Spanish.
var sensitiveWords = strings.Fields(`pay* paid card cards credit debit iban bic swift account* bank* invoice* refund* price* discount* coupon* voucher* money cash
	wallet* crypto* bitcoin bill* charge* fee* cost* upgrade* password* passcode* passphrase* pin otp token* secret* credential* api
	identity identit* passport* licence* license* ssn birth* nationality gender name names email* phone* address* biometric* fingerprint*
	access* login* logon sign auth* admin* root sudo role roles permission* privilege* owner* grant* unlock* bypass* override* disable* delete* export*
	ignore* disregard* obey* instruct* prompt* jailbreak* forward* reveal* leak*
	zahl* bezahl* karte* konto* konten rechnung* erstattung* preis* rabatt* gutschein* kosten* kostenlos* gratis passwort* kennwort* ausweis* geburt* zugang* zugriff* rechte berechtig* adresse* telefon* name* anmeld* lösch*
	paie* payer carte* compte* facture* rembours* prix remise* gratuit* passe passeport* naissance* accès droit* adresse* supprim*
	pag* tarjeta* cuenta* factura* reembols* precio* descuento* gratis contraseña* pasaporte* nacimiento* acceso* permiso* dirección* borrar`)

// Why returns why a key waits for an operator; "" if it does not.
func (s Sensitive) Why(k template.Key, c Cluster) string {
	text := strings.ReplaceAll(k.Name, "_", " ") + " " + k.Description + " " + strings.Join(c.Examples, " ")
	text += " " + plain(strings.ToLower(text)) // a reader reads "ｐａｙ" and "páy" as "pay"
	words := template.Words(text)
	for _, list := range [][]string{sensitiveWords, s.Words} {
		for _, w := range words {
			if matches(list, w.Text) {
				return fmt.Sprintf("it may be about payment, identity or access, or an order (%q)", w.Text)
			}
		}
	}
	if s.Pattern != nil && s.Pattern.MatchString(text) {
		return "it matches the operator's pattern for sensitive keys"
	}
	if s.Capabilities == nil {
		return ""
	}
	names, all := s.Capabilities()
	for _, capability := range names {
		if exposes(k.Name, capability) {
			return fmt.Sprintf("it may expose the agent's capability %s", capability)
		}
	}
	if !all {
		return "it may expose a capability of the agent: a server has not listed its tools yet"
	}
	return ""
}

func matches(list []string, word string) bool {
	return slices.ContainsFunc(list, func(w string) bool {
		w = strings.ToLower(w)
		begin, open := strings.CutSuffix(w, "*")
		return word == w || open && begin != "" && strings.HasPrefix(word, begin)
	})
}

// exposes reports whether one name contains all words of the other.
func exposes(key, capability string) bool {
	split := func(name string) (out []string) {
		for _, w := range template.Words(camel.RE().ReplaceAllString(strings.NewReplacer("_", " ", ".", " ", "-", " ", "/", " ").Replace(name), "$1 $2")) {
			out = append(out, w.Text)
		}
		return out
	}
	a, b := split(key), split(capability)
	within := func(a, b []string) bool {
		return len(a) > 0 && !slices.ContainsFunc(a, func(w string) bool { return !slices.Contains(b, w) })
	}
	return within(a, b) || within(b, a)
}

var camel = pattern.Of(`(\p{Ll})(\p{Lu})`)

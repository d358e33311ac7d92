package outbound

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// A target is what a URL points at, in one form: lower case, no trailing dot,
// A-labels, addresses as netip writes them, IPv4 out of IPv6.
type target struct {
	scheme string // http or https; ws and wss count as these
	host   string
	ip     netip.Addr // of a host that is an address
	port   int
	path   string // decoded
}

// maxURL is how long a URL may be, in bytes.
const maxURL = 8 << 10

// targetOf parses a URL. It refuses what parsers read differently: a user
// before the host, zones, numbers that some resolvers take for an address, and
// characters that no host has.
func targetOf(u *url.URL) (target, error) {
	var t target
	switch u.Scheme {
	case "https", "wss":
		t.scheme, t.port = "https", 443
	case "http", "ws":
		t.scheme, t.port = "http", 80
	default:
		return t, refusef("%q is not an http or https URL", clip.Text(u.Redacted(), 200))
	}
	if u.User != nil {
		return t, refusef("a user name or password in a URL")
	}
	if u.Opaque != "" || u.Host == "" {
		return t, refusef("%q has no host", clip.Text(u.Redacted(), 200))
	}
	var err error
	if t.host, t.ip, err = canonicalHost(u.Hostname()); err != nil {
		return t, err
	}
	if p := u.Port(); p != "" {
		n, err := strconv.Atoi(p)
		if err != nil || n < 1 || n > 65535 {
			return t, refusef("port %q", clip.Text(p, 200))
		}
		t.port = n
	} else if strings.HasSuffix(u.Host, ":") {
		return t, refusef("an empty port in %q", clip.Text(u.Host, 200))
	}
	t.path = cmp.Or(u.Path, "/")
	return t, nil
}

// canonicalHost returns the normalised form of a host: a name or an address.
func canonicalHost(host string) (string, netip.Addr, error) {
	if strings.ContainsRune(host, '%') {
		return "", netip.Addr{}, refusef("an address with a zone, %q", clip.Text(host, 200))
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		return ip.String(), ip, nil
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	if !isASCII(name) {
		// The same profile as net/http uses when it dials.
		ascii, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return "", netip.Addr{}, refusef("%q is no host name", clip.Text(host, 200))
		}
		name = strings.TrimSuffix(ascii, ".")
	}
	if len(name) > 253 {
		return "", netip.Addr{}, refusef("a host name of %d characters", len(name))
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, notInLabel) {
			return "", netip.Addr{}, refusef("%q is no host name", clip.Text(host, 200))
		}
	}
	if last := labels[len(labels)-1]; isNumber(last) {
		// 2130706433, 0x7f.1, 0177.0.0.1, 127.1: some resolvers take these for
		// addresses.
		return "", netip.Addr{}, refusef("%q is not written as an address of four decimal numbers", clip.Text(host, 200))
	}
	return name, netip.Addr{}, nil
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}

func notInLabel(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// isNumber reports whether a last label makes the host an address for parsers
// that follow browsers (URL Standard, "ends in a number").
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return !strings.ContainsFunc(hex, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) })
	}
	return !strings.ContainsFunc(label, func(r rune) bool { return r < '0' || r > '9' })
}

// hostPort returns the target's host and port, in the form of an entry of
// Allow.
func (t target) hostPort() string {
	if t.scheme == "https" && t.port == 443 {
		if t.ip.Is6() {
			return "[" + t.host + "]"
		}
		return t.host
	}
	return net.JoinHostPort(t.host, strconv.Itoa(t.port))
}

// origin is scheme, host and port in one form.
func (t target) origin() string {
	return t.scheme + "://" + net.JoinHostPort(t.host, strconv.Itoa(t.port))
}

// sameOrigin reports whether credentials for one URL may be sent to the other.
func sameOrigin(a, b *url.URL) bool {
	ta, errA := targetOf(a)
	tb, errB := targetOf(b)
	return errA == nil && errB == nil && ta.origin() == tb.origin()
}

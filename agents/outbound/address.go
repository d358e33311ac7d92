package outbound

import (
	"fmt"
	"net/netip"
	"slices"
)

// special are the blocks of IPv4, and of IPv6 within 2000::/3, that are not
// public (IANA's special-purpose address registries). All other IPv6 addresses
// are refused.
var special = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared (carrier NAT)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "reserved"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("2001::/23"), "reserved"}, // Teredo, ORCHID, benchmarks
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
	{netip.MustParsePrefix("2002::/16"), "6to4"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation"},
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052: IPv4 in its last four bytes
)

// metadata are the addresses at which clouds give a machine its secrets. A
// block in Config.Private does not permit them; each must be listed itself.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // AWS, Azure, GCP, DigitalOcean, Oracle, OpenStack
	netip.MustParseAddr("169.254.170.2"),   // AWS, containers
	netip.MustParseAddr("169.254.170.23"),  // AWS, pods
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle, older
	netip.MustParseAddr("168.63.129.16"),   // Azure's wire server, a public address
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd00:ec2::23"),    // AWS, pods
	netip.MustParseAddr("fd20:ce::254"),    // GCP
}

// notPublic returns what kind of address ip is, or "" for a public one.
func notPublic(ip netip.Addr) string {
	ip = ip.Unmap()
	if ip.Zone() != "" {
		return "with a zone"
	}
	if slices.Contains(metadata, ip) {
		return "of a cloud's metadata service"
	}
	if nat64.Contains(ip) {
		if what := notPublic(lastFour(ip)); what != "" {
			return what + ", by way of NAT64"
		}
		return ""
	}
	for _, s := range special {
		if s.prefix.Contains(ip) {
			return s.what
		}
	}
	if ip.Is6() && !globalUnicast.Contains(ip) {
		return "reserved" // includes IPv4-compatible addresses and the local NAT64 block
	}
	if b := ip.As16(); ip.Is6() && b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // ISATAP, RFC 5214
		if what := notPublic(lastFour(ip)); what != "" {
			return what + ", by way of ISATAP"
		}
	}
	return ""
}

func lastFour(ip netip.Addr) netip.Addr {
	b := ip.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// private is an entry of Config.Private, or an address in Config.Allow.
type private struct {
	host   string // a name that may resolve to private addresses
	prefix netip.Prefix
}

// allows reports whether the entry permits a connection for host to ip. A
// metadata service must be listed by its own address.
func (e private) allows(host string, ip netip.Addr) bool {
	ip = ip.Unmap()
	meta := slices.Contains(metadata, ip) || nat64.Contains(ip) && slices.Contains(metadata, lastFour(ip))
	if e.host != "" {
		return !meta && e.host == host
	}
	return e.prefix.Contains(ip) && (!meta || e.prefix.IsSingleIP())
}

// checkAddress checks a connection: host is from the URL, ip the resolved
// address.
func (p *Policy) checkAddress(host string, ip netip.Addr) error {
	what := notPublic(ip)
	if what == "" {
		return nil
	}
	if p != nil {
		for _, e := range p.private {
			if e.allows(host, ip) {
				return nil
			}
		}
	}
	// The address belongs to the operator's own network: the log contains it,
	// but Call does not send it to the model.
	return refusef("the address %s of %s is %s", ip, host, what).allowHint("private", ip.Unmap().String())
}

// checkOutside checks a connection that no entry of Config.Allow permits.
func checkOutside(host string, ip netip.Addr) error {
	what := notPublic(ip)
	if what == "" {
		return nil
	}
	r := refusef("the address %s of %s is %s", ip, host, what)
	if !slices.Contains(metadata, ip.Unmap()) {
		r.hint = fmt.Sprintf("to allow it, add the endpoint to outbound.allow, and %q to outbound.private", host)
	}
	return r
}

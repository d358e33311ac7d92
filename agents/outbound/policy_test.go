package outbound

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func newPolicy(t testing.TB, c Config) *Policy {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// What a policy of a few entries makes of endpoints.
func TestEndpointsAreAllowedByEntries(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Config{
		Allow: []string{"api.example.com", "crm.example.com:8443", "*.tools.example", "any.example:*", "http://plain.example",
			"https://docs.example/v1/", "http://127.0.0.1:8080", "[::1]:8443", "bücher.example", "localhost:9000", "10.1.2.3"},
		Private: []string{"10.9.0.0/16"},
	})
	for raw, want := range map[string]string{
		"https://api.example.com":                               "https://api.example.com",
		"https://api.example.com/x?y=1":                         "https://api.example.com/x?y=1",
		"https://API.Example.COM./x":                            "https://api.example.com/x",
		"https://api.example.com:443/":                          "https://api.example.com:443/",
		"wss://api.example.com/mcp":                             "wss://api.example.com/mcp",
		"https://crm.example.com:8443/":                         "https://crm.example.com:8443/",
		"https://a.tools.example/":                              "https://a.tools.example/",
		"https://a.b.tools.example/":                            "https://a.b.tools.example/",
		"https://any.example:1234/":                             "https://any.example:1234/",
		"http://plain.example/x":                                "http://plain.example/x",
		"https://docs.example/v1":                               "https://docs.example/v1",
		"https://docs.example/v1/x":                             "https://docs.example/v1/x",
		"http://127.0.0.1:8080/x":                               "http://127.0.0.1:8080/x",
		"http://[::ffff:127.0.0.1]:8080/x":                      "http://127.0.0.1:8080/x",
		"https://[::1]:8443/":                                   "https://[::1]:8443/",
		"https://[0:0::1]:8443/":                                "https://[::1]:8443/",
		"https://xn--bcher-kva.example":                         "https://xn--bcher-kva.example",
		"https://BÜCHER.example/":                               "https://xn--bcher-kva.example/",
		"https://localhost:9000/":                               "https://localhost:9000/",
		"https://10.1.2.3/":                                     "https://10.1.2.3/",
		"https://api.example.com/a/../b":                        "https://api.example.com/a/../b",
		"https://api.example.com:8443/":                         "",
		"http://api.example.com/":                               "",
		"https://example.com/":                                  "",
		"https://api.example.com.evil.test/":                    "",
		"https://evil-api.example.com/":                         "",
		"https://tools.example/":                                "",
		"https://xtools.example/":                               "",
		"https://plain.example/":                                "",
		"http://plain.example:81/":                              "",
		"https://docs.example/v10":                              "",
		"https://docs.example/":                                 "",
		"https://docs.example/v1/../v2":                         "",
		"https://docs.example/v1/%2e%2e/v2":                     "",
		"https://docs.example/v1/..%2fv2":                       "",
		"https://docs.example/v1/%252e%252e/v2":                 "",
		`https://docs.example/v1/..\v2`:                         "",
		"https://docs.example/v1/..;/v2":                        "",
		"https://docs.example/v1/./x":                           "",
		"https://docs.example/v1//x":                            "",
		"https://docs.example/v1%2fx":                           "", // for some servers one segment
		`https://docs.example/v1/%5Cx`:                          "",
		"https://user@api.example.com/":                         "",
		"https://api.example.com@evil.test/":                    "",
		"https://api.example.com:pw@evil.test":                  "",
		"https://evil.test#@api.example.com/":                   "",
		`https://evil.test\@api.example.com/`:                   "",
		"https://api.example.com:0/":                            "",
		"https://api.example.com:/":                             "",
		"https://api.example.com:99999/":                        "",
		"https://any.example:0/":                                "",
		"https://any.example:99999/":                            "",
		"https://api..example.com/":                             "",
		"https:api.example.com":                                 "",
		"https:///api.example.com":                              "",
		"//api.example.com/":                                    "",
		"file:///etc/passwd":                                    "",
		"gopher://api.example.com/":                             "",
		"javascript:alert(1)":                                   "",
		" https://api.example.com/":                             "",
		"https://api.example.com/\r\nx":                         "",
		"https://api.example.com/a b":                           "",
		`https://api.example.com/a\b`:                           "",
		"":                                                      "",
		"https://" + strings.Repeat("a", 300):                   "",
		"https://" + strings.Repeat("a", 64) + ".tools.example": "",
		"https://a" + strings.Repeat(".tools.example", 20):      "",
		"https://api.example.com/" + strings.Repeat("a", 9000):  "",
		"http://127.0.0.1:8081/":                                "",
		"https://[::1%25lo]:8443/":                              "",
		"https://10.9.1.1/":                                     "", // private space that may be connected to is not allowed by itself
	} {
		u, err := p.Check(raw)
		switch {
		case want == "" && !errors.Is(err, ErrRefused):
			t.Errorf("%.80q: %v, %v; want it refused", raw, u, err)
		case want != "" && (err != nil || u.String() != want):
			t.Errorf("%.80q: %v, %v; want %s", raw, u, err, want)
		}
	}
}

// * is every host, and still no address of the operator's own network.
func TestAddressesInTheirManyForms(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Config{Allow: []string{"*"}})
	for _, host := range []string{"example.com", "8.8.8.8", "[2606:4700::1111]", "[::ffff:8.8.8.8]", "[64:ff9b::808:808]", "1.com", "0x7f.example"} {
		if _, err := p.Check("https://" + host + "/"); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{
		"127.0.0.1", "127.1", "127.0.1", "2130706433", "017700000001", "0177.0.0.1", "0x7f000001", "0x7f.0.0.1", "0X7F.1", "127.0.0.01", "0",
		"127.0.0.1.", "1.1.1.256", "①②⑦.⓪.⓪.①", "127。0。0。1", "0x", "example.0x7f",
		"0.0.0.0", "10.0.0.1", "100.64.0.1", "100.127.255.254", "169.254.1.1", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1",
		"192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "[fd00:ec2::254]",
		"[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:169.254.169.254]", "[::127.0.0.1]", "[::7f00:1]",
		"[64:ff9b::7f00:1]", "[64:ff9b::10.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2002:a00:1::1]", "[2001:0:1::1]",
		"[fc00::1]", "[fd12::1]", "[fe80::1]", "[fe80::1%25eth0]", "[fec0::1]", "[ff02::1]", "[100::1]", "[2001:db8::1]", "[3fff::1]", "[5f00::1]", "[4000::1]",
		"[2606:4700::5efe:7f00:1]", "[2606:4700::200:5efe:a00:1]",
	} {
		if u, err := p.Check("https://" + host + "/"); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v, %v; want it refused", host, u, err)
		}
	}
}

func TestPrivateAddressesAreAllowedByName(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Config{Allow: []string{"10.0.0.5:8080", "localhost:1"}, Private: []string{"10.1.0.0/16", "crm.internal", "fd00::/8", "169.254.0.0/16", "169.254.170.2"}})
	for _, tt := range []struct {
		host, ip string
		ok       bool
	}{
		{"a.example", "8.8.8.8", true},
		{"a.example", "::ffff:8.8.8.8", true},
		{"a.example", "10.1.2.3", true},
		{"a.example", "::ffff:10.1.2.3", true},
		{"a.example", "10.0.0.5", true},
		{"a.example", "10.0.0.6", false},
		{"a.example", "10.2.0.1", false},
		{"crm.internal", "192.168.7.7", true},
		{"crm.internal", "169.254.169.254", false},
		{"crm.internal", "64:ff9b::a9fe:a9fe", false}, // the same by way of NAT64
		{"x.crm.internal", "192.168.7.7", false},
		{"localhost", "127.0.0.1", true},
		{"a.example", "127.0.0.1", false},
		{"a.example", "fd12::1", true},
		{"a.example", "fd00:ec2::254", false}, // in an allowed block, but a metadata service
		{"a.example", "169.254.1.1", true},
		{"a.example", "169.254.169.254", false},
		{"a.example", "169.254.170.2", true}, // named itself
		{"a.example", "64:ff9b::a9fe:a9fe", false},
		{"a.example", "fe80::1%eth0", false},
	} {
		if err := p.checkAddress(tt.host, netip.MustParseAddr(tt.ip)); (err == nil) != tt.ok {
			t.Errorf("%s at %s: %v, want allowed %v", tt.host, tt.ip, err, tt.ok)
		}
	}
}

// The error of a refused endpoint says what to add.
func TestRefusalsSayWhatToAdd(t *testing.T) {
	t.Parallel()
	empty := newPolicy(t, Config{})
	for raw, want := range map[string]string{
		"https://api.example.com/v1":     `add "api.example.com" to outbound.allow (worker --allow api.example.com)`,
		"https://API.example.com.:8443/": `add "api.example.com:8443" to outbound.allow`,
		"http://intranet:8080/":          `add "http://intranet:8080" to outbound.allow`,
		"https://[2606:4700::1]/":        `add "[2606:4700::1]" to outbound.allow`,
	} {
		for _, p := range []*Policy{empty, nil} {
			_, err := p.Check(raw)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", raw, err, want)
				continue
			}
		}
		// And with what it says added, it is allowed.
		_, err := empty.Check(raw)
		entry := strings.Split(err.Error(), `"`)[1]
		if _, err := newPolicy(t, Config{Allow: []string{entry}}).Check(raw); err != nil {
			t.Errorf("%s with %q: %v", raw, entry, err)
		}
	}
	_, err := newPolicy(t, Config{Allow: []string{"*"}}).Check("https://192.168.1.1/")
	if err == nil || !strings.Contains(err.Error(), `add "192.168.1.1" to outbound.private (worker --allow-private 192.168.1.1)`) {
		t.Error(err)
	}
}

func TestConfigReportsAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := New(Config{
		Allow:            []string{"", "a b", "ftp://x", "https://x/?q=1", "*.", "*.1.2.3.4", "https://*.1.2.3.4/x", "[fe80::1%eth0]", "127.1", "x:99999", "https://u:p@x", "https://x/../y", "ok.example"},
		Private:          []string{"10.0.0.1/8", "a b", "10.0.0.0/8"},
		Files:            []string{""},
		CAFile:           "/nowhere/ca.pem",
		MaxResponseBytes: -1,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 12+2+1+1+1 {
		t.Errorf("%d problems:\n%v", len(lines), err)
	}
}

// What is public needs no entry of its own; what is written as being inside does.
func TestLiteralAddressesNeedAnEntry(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Config{Allow: []string{"*", "http://10.0.0.1:8080", "http://a.localhost"}, Private: []string{"192.168.0.0/16"}})
	for raw, want := range map[string]bool{
		"https://models.example/v1": true, "http://models.example/v1": true, "https://8.8.8.8": true,
		"http://10.0.0.1:8080/v1": true, "http://10.0.0.1:8081/v1": false, "https://192.168.1.1": true, "http://192.168.1.1": false,
		"https://localhost": false, "https://LOCALHOST.": false, "http://a.localhost": false, "https://[::1]": false,
		"http://169.254.169.254": false, "https://127.1": false, "https://user@models.example": false, "ftp://models.example": false, "": false,
	} {
		if err := p.CheckLiteral(raw); (err == nil) != want {
			t.Errorf("%q: %v, allowed should be %v", raw, err, want)
		}
	}
}

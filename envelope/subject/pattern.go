package subject

import "strings"

// Covers reports whether every subject that matches pattern b also matches pattern a.
func Covers(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i, t := range as {
		if t == ">" {
			return len(bs) > i
		}
		if i >= len(bs) || bs[i] == ">" || t != "*" && t != bs[i] {
			return false
		}
	}
	return len(as) == len(bs)
}

// Overlap reports whether some subject matches both patterns.
func Overlap(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; i < len(as) && i < len(bs); i++ {
		if as[i] == ">" || bs[i] == ">" {
			return true
		}
		if as[i] != "*" && bs[i] != "*" && as[i] != bs[i] {
			return false
		}
	}
	return len(as) == len(bs)
}

// Union adds to have the patterns of want that have does not cover, and removes those that an added
// pattern covers, because nats-server refuses overlapping subjects of one stream.
func Union(have, want []string) []string {
	out := append([]string(nil), have...)
	for _, w := range want {
		covered := false
		kept := out[:0:0]
		for _, h := range out {
			covered = covered || Covers(h, w)
			if !Covers(w, h) || h == w {
				kept = append(kept, h)
			}
		}
		if !covered {
			out = append(kept, w)
		}
	}
	return out
}

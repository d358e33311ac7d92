package model

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
)

// USD is an amount of money in billionths of a US dollar: fine enough for one
// token of the cheapest model, and exact when many are added. Its text and JSON
// form is a plain decimal number of dollars, 0.00125.
type USD int64

// Dollar is one US dollar.
const Dollar USD = 1e9

// ParseUSD reads a decimal number of dollars, 0.00125 or 1.5e-7. Fractions of a
// billionth are rounded to the nearest.
func ParseUSD(s string) (USD, error) {
	if len(s) > 64 || strings.ContainsAny(s, "/_xXpP") || strings.TrimLeft(s, "+-.0123456789eE") != "" {
		return 0, errors.New("not a decimal number of dollars")
	}
	f, _, err := big.ParseFloat(s, 10, 128, big.ToNearestEven)
	if err != nil || f.IsInf() {
		return 0, errors.New("not a decimal number of dollars")
	}
	f.Mul(f, big.NewFloat(float64(Dollar)))
	half := big.NewFloat(0.5)
	if f.Sign() < 0 {
		half.Neg(half)
	}
	n, accuracy := f.Add(f, half).Int64()
	if n == math.MaxInt64 || n == math.MinInt64 && accuracy != big.Exact {
		return 0, errors.New("too many dollars")
	}
	return USD(n), nil
}

// Price is the price of a call.
type Price struct {
	Input, Output USD   // upper bounds, for a thousand tokens
	Known         bool  // otherwise Input and Output are meaningless
	MaxOutput     int64 // the longest answer in tokens; 0: unknown
}

// String formats the amount in dollars, without a currency sign: 0.00125.
func (u USD) String() string {
	sign, n := "", uint64(u)
	if u < 0 {
		sign, n = "-", -n
	}
	s := fmt.Sprintf("%s%d.%09d", sign, n/uint64(Dollar), n%uint64(Dollar))
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// MarshalJSON writes a JSON number.
func (u USD) MarshalJSON() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalJSON reads a JSON number.
func (u *USD) UnmarshalJSON(text []byte) (err error) {
	if string(text) == "null" {
		return nil
	}
	*u, err = ParseUSD(string(text))
	return err
}

// Add returns the sum of two amounts that are not negative, at most the maximum
// of USD.
func (u USD) Add(v USD) USD {
	if u > math.MaxInt64-max(0, v) {
		return math.MaxInt64
	}
	return u + v
}

// MaxUSD is the largest cost that is accepted as plausible. Each lower one has at most 15 digits,
// so that signed envelopes can contain it.
const MaxUSD = 1_000_000 * Dollar

// Believable returns a reported cost, limited to plausible values: not negative, which would
// increase a budget, and not above [MaxUSD].
func (u USD) Believable() USD { return min(max(0, u), MaxUSD) }

// For returns the price of n tokens if u is the price of a thousand, rounded to
// the nearest billionth and at most the maximum of USD. Negative counts cost
// nothing.
func (u USD) For(n int64) USD {
	if n <= 0 || u <= 0 {
		return 0
	}
	p := new(big.Int).Mul(big.NewInt(int64(u)), big.NewInt(n))
	p.Add(p, big.NewInt(500)).Div(p, big.NewInt(1000))
	if !p.IsInt64() {
		return math.MaxInt64
	}
	return USD(p.Int64())
}

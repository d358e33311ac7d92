package model_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
)

func TestUSDTextIsDecimal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]model.USD{
		"0": 0, "1": model.Dollar, "-0.5": -model.Dollar / 2, "0.00125": 1_250_000, "1.5e-7": 150, "0.0000000004": 0, "0.0000000005": 1,
		"9223372036.854775806": math.MaxInt64 - 1, "0.1": 100_000_000, "0.3": 300_000_000,
	} {
		got, err := model.ParseUSD(text)
		if err != nil || got != want {
			t.Errorf("ParseUSD(%q) = %d, %v, want %d", text, got, err, want)
			continue
		}
		if again, err := model.ParseUSD(got.String()); err != nil || again != got {
			t.Errorf("%q is written as %q, which is read as %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "x", "0x10", "1/3", "Inf", "NaN", "1_0", "1e400", "9223372037", "-9223372037", "1e99999999999", " 1"} {
		if got, err := model.ParseUSD(text); err == nil {
			t.Errorf("ParseUSD(%q) = %d, want an error", text, got)
		}
	}
}

func TestUSDIsAJSONNumber(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(struct{ Cost model.USD }{1_250_000})
	if err != nil || string(raw) != `{"Cost":0.00125}` {
		t.Errorf("%s, %v", raw, err)
	}
	var back struct{ Cost model.USD }
	if err := json.Unmarshal(raw, &back); err != nil || back.Cost != 1_250_000 {
		t.Errorf("%d, %v", back.Cost, err)
	}
	if err := json.Unmarshal([]byte(`{"Cost":"1"}`), &back); err == nil {
		t.Error("a string is no amount")
	}
}

func TestUSDForTokens(t *testing.T) {
	t.Parallel()
	price, _ := model.ParseUSD("0.00015") // a thousand
	for n, want := range map[int64]model.USD{0: 0, -5: 0, 1: 150, 1000: 150_000, 1_000_000: 150_000_000, math.MaxInt64: math.MaxInt64} {
		if got := price.For(n); got != want {
			t.Errorf("%d tokens cost %d, want %d", n, got, want)
		}
	}
	if got := model.USD(1).For(499); got != 0 {
		t.Errorf("half a billionth and less is rounded down: %d", got)
	}
}

func TestUSDAddStaysWithinBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, want model.USD }{{1, 2, 3}, {math.MaxInt64, 1, math.MaxInt64}, {1, math.MaxInt64, math.MaxInt64}, {0, 0, 0}} {
		if got := c.a.Add(c.b); got != c.want {
			t.Errorf("%d + %d = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

package learn_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
)

func TestSettingsThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"exclude":["agent.>.x"]}`:                         `learning.exclude: "agent.>.x" is no pattern`,
		`{"cohorts":{"a":["agent.x*"],"b":["agent.x*"]}}`:   `learning.cohorts: "agent.x*" is a pattern of a and of b`,
		`{"interval":"1ns"}`:                                "learning.interval: 1ns is less than 100ms",
		`{"rules":{"trial":168}}`:                           "168 is no duration: write a number with its unit",
		`{"rules":{"anonymity":1}}`:                         "anonymity: 1 is not between 2 and",
		`{"cohorts":{"a":["agent.x*"]},"interval":"500ms"}`: "",
	} {
		var s learn.Settings
		err := json.Unmarshal([]byte(raw), &s)
		if err == nil {
			err = s.Apply(&learn.Config{})
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}

package aaif_test

import (
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// Nothing may be left out at levels strict and regulated, nor at one that this runtime does not know.
func TestWhichSafetyLevelsLeaveNothingOut(t *testing.T) {
	t.Parallel()
	for level, want := range map[aaif.SafetyLevel]bool{"": false, aaif.SafetyMinimal: false, aaif.SafetyStandard: false, aaif.SafetyStrict: true, aaif.SafetyRegulated: true, "unknown": true} {
		if got := level.LeavesNothingOut(); got != want {
			t.Errorf("%q: %v", level, got)
		}
	}
}

// What the worker does not do about personal data and regions is not said to be honoured, and at
// level strict the schema's default counts. A document's signature is not checked.
func TestWhatTheWorkerDoesNotDoIsNotHonoured(t *testing.T) {
	t.Parallel()
	for compliance, want := range map[string]string{
		`"pii_handling":"none"`:                         "",
		`"pii_handling":"detect"`:                       "/agent/compliance/pii_handling",
		`"data_residency":"EU","pii_handling":"none"`:   "/agent/compliance/data_residency",
		`"safety_level":"strict"`:                       "/agent/compliance/pii_handling",
		`"safety_level":"strict","pii_handling":"none"`: "",
		`"safety_level":"standard"`:                     "",
	} {
		text := `{"sc_standard":"SC-006","sc_version":"1.0.0","agent":{"name":"a","goal":"g","compliance":{` + compliance + `}},"provenance":{"signature":"x"}}`
		doc, err := aaif.Parse([]byte(text), aaif.Options{Kind: aaif.KindAgent})
		if err != nil {
			t.Fatalf("%s: %v", compliance, err)
		}
		var got []string
		for _, p := range aaif.NotHonoured(doc, aaif.WorkerSupports()) {
			got = append(got, p.Pointer)
		}
		if strings.Join(got, " ") != strings.TrimSpace(want+" /provenance/signature") {
			t.Errorf("%s: %q, want %q", compliance, got, want)
		}
	}
}

// An operator accepts one place, by its name.
func TestAcceptedFieldsHaveNoWildcards(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "/", "*", "agent.*", "/agent/tools/*/name", "tools[0]", "agent..name", "compliance.audit_lo?"} {
		if pointer, err := aaif.FieldPointer(text); err == nil {
			t.Errorf("%q is %s", text, pointer)
		}
	}
}

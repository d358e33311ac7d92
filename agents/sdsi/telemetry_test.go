package sdsi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/metrictest"
)

func TestPayloadsAreCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	meter, collect := metrictest.New()
	r.serve(r.desk(sdsi.DeskConfig{Meter: meter}, tram(t, "tram_v1")), sells, nil)
	for _, payload := range []string{
		`{"stop_from":"Harbour"}`, `{"stop_from":"Harbour","other":["a window","a dog"]}`,
		`{"zone_count":1}`, `{"stop_from":"Harbour","zone_count":7}`,
	} {
		r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":`+payload+`}`)
	}
	r.ask(intents.Exchange, `{"schema_id":"tram_v7","payload":{}}`) // of no scenario

	var data metricdata.ResourceMetrics
	if err := collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range data.ScopeMetrics[0].Metrics {
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			raw, err := json.Marshal(p.Attributes.ToSlice())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(m.Name, " ", p.Value, " ", string(raw)))
		}
	}
	slices.Sort(got)
	want := []string{"aee.sdsi.others 2 ", "aee.sdsi.payloads 1 maximum", "aee.sdsi.payloads 1 required", "aee.sdsi.payloads 2 "}
	if len(got) != len(want) {
		t.Fatalf("%s", strings.Join(got, "\n"))
	}
	for i, w := range want {
		name, rule := w[:strings.LastIndexByte(w, ' ')], w[strings.LastIndexByte(w, ' ')+1:]
		if !strings.HasPrefix(got[i], name) || !strings.Contains(got[i], `"tram_ticket"`) || !strings.Contains(got[i], `"agent.trams"`) || strings.Contains(got[i], "error.type") != (rule != "") || !strings.Contains(got[i], rule) {
			t.Errorf("%s, want %s", got[i], w)
		}
	}
}

package sdsi

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/aeemesh/aeemesh/intents/template"
)

// scope names this package to OpenTelemetry.
const scope = "github.com/aeemesh/aeemesh/agents/sdsi"

// telemetry counts the payloads of clients. The zero value counts nothing.
type telemetry struct {
	payloads metric.Int64Counter
	others   metric.Int64Counter
}

func newTelemetry(mp metric.MeterProvider) (telemetry, error) {
	var tel telemetry
	if mp == nil {
		return tel, nil
	}
	var errs [2]error
	m := mp.Meter(scope)
	tel.payloads, errs[0] = m.Int64Counter("aee.sdsi.payloads", metric.WithUnit("{payload}"),
		metric.WithDescription("Payloads checked by a schema template; refused ones have error.type, the first rule that was broken."))
	tel.others, errs[1] = m.Int64Counter("aee.sdsi.others", metric.WithUnit("{text}"),
		metric.WithDescription("Texts that clients had no key for: those in the key other."))
	return tel, errors.Join(errs[:]...)
}

// checked counts a payload that was checked against v; err is the result of the check.
func (tel *telemetry) checked(entity string, v *version, filled *template.Filled, err error) {
	if tel.payloads == nil {
		return
	}
	of := []attribute.KeyValue{attribute.String("aee.entity", entity), attribute.String("aee.sdsi.scenario", v.Scenario)}
	if err != nil {
		rule := "payload"
		var refused *template.PayloadError
		if errors.As(err, &refused) && len(refused.Problems) > 0 {
			rule = refused.Problems[0].Rule
		}
		of = append(of, attribute.String("error.type", rule))
	}
	as := metric.WithAttributeSet(attribute.NewSet(of...))
	tel.payloads.Add(context.Background(), 1, as)
	if err == nil && len(filled.Other) > 0 {
		tel.others.Add(context.Background(), int64(len(filled.Other)), as)
	}
}

package aaif

import (
	"github.com/go-json-experiment/json"
)

// Clone returns a deep copy.
func (d *Definition) Clone() *Definition {
	text, err := json.Marshal(d)
	if err != nil {
		panic("aaif: clone: " + err.Error()) // a Definition that cannot be encoded was assembled wrongly by a program
	}
	c := new(Definition)
	if err := json.Unmarshal(text, c); err != nil {
		panic("aaif: clone: " + err.Error())
	}
	return c
}

// WithDefaults returns a copy in which every field that the schema gives a
// default has a value, and every block that holds such fields is there: callers
// need not check for nil. The receiver is not changed and still shows which
// fields its author declared.
//
// The blocks are model, orchestration, io, runtime, telemetry, compliance and
// human_in_the_loop; handoffs, memory items and the auth of tools are completed
// if they are present.
func (d *Definition) WithDefaults() *Definition {
	c := d.Clone()
	set(&c.Version, Version)
	set(&c.Status, StatusActive)
	a := &c.Agent
	block(&a.Model)
	set(&a.Model.RoutingStrategy, RoutePreferredFirst)
	set(&a.Model.ResponseFormat, ResponseText)
	block(&a.Orchestration)
	setBool(&a.Orchestration.ParallelExecution, false)
	set(&a.Orchestration.MaxIterations, Int(10))
	for i := range a.Orchestration.Handoff {
		h := &a.Orchestration.Handoff[i]
		setBool(&h.PassContext, true)
		setBool(&h.PassMemory, false)
	}
	for i := range a.Tools {
		if auth := a.Tools[i].Auth; auth != nil {
			set(&auth.Type, AuthNone)
		}
	}
	for i := range a.Memory {
		set(&a.Memory[i].TopK, Int(5))
	}
	block(&a.IO)
	setBool(&a.IO.Streaming, false)
	set(&a.IO.Format, IOText)
	set(&a.IO.Mode, ModeSync)
	block(&a.Runtime)
	set(&a.Runtime.MaxRetries, Int(2))
	set(&a.Runtime.RetryBackoff, BackoffExponential)
	set(&a.Runtime.Concurrency, Int(1))
	setBool(&a.Runtime.Streaming, false)
	setBool(&a.Runtime.AsyncExecution, false)
	set(&a.Runtime.Environment, EnvProduction)
	block(&a.Telemetry)
	setBool(&a.Telemetry.Tracing, true)
	set(&a.Telemetry.LogLevel, LogInfo)
	setBool(&a.Telemetry.Metrics, true)
	set(&a.Telemetry.TraceContextHeader, "traceparent")
	block(&a.Compliance)
	set(&a.Compliance.SafetyLevel, SafetyStandard)
	set(&a.Compliance.PIIHandling, PIIDetect)
	setBool(&a.Compliance.AuditLog, false)
	block(&a.Compliance.HumanInTheLoop)
	setBool(&a.Compliance.HumanInTheLoop.Enabled, false)
	return c
}

// block allocates a block that is absent.
func block[T any](p **T) {
	if *p == nil {
		*p = new(T)
	}
}

// set fills in a field that is absent.
func set[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func setBool(p **bool, v bool) {
	if *p == nil {
		*p = &v
	}
}

package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// The shapes of ADR-32, as the nats CLI checks them: a response that does not
// fit is not shown.
const adr32 = `{
  "$defs": {
    "identity": {
      "type": "object", "required": ["type", "name", "id", "version", "metadata"],
      "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
        "id": {"type": "string", "minLength": 1},
        "version": {"type": "string", "pattern": "^(0|[1-9]\\d*)\\.(0|[1-9]\\d*)\\.(0|[1-9]\\d*)(?:-((?:0|[1-9]\\d*|\\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\\.(?:0|[1-9]\\d*|\\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\\+([0-9a-zA-Z-]+(?:\\.[0-9a-zA-Z-]+)*))?$"},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}}
      }
    },
    "ping": {"allOf": [{"$ref": "#/$defs/identity"}], "properties": {"type": {"const": "io.nats.micro.v1.ping_response"}}},
    "info": {"allOf": [{"$ref": "#/$defs/identity"}], "required": ["description", "endpoints"],
      "properties": {"type": {"const": "io.nats.micro.v1.info_response"}, "description": {"type": "string"},
        "endpoints": {"type": "array", "items": {"type": "object", "required": ["name", "subject", "queue_group"],
          "properties": {"name": {"type": "string"}, "subject": {"type": "string"}, "queue_group": {"type": "string"},
            "metadata": {"type": ["object", "null"], "additionalProperties": {"type": "string"}}}}}}},
    "stats": {"allOf": [{"$ref": "#/$defs/identity"}], "required": ["started", "endpoints"],
      "properties": {"type": {"const": "io.nats.micro.v1.stats_response"}, "started": {"type": "string", "format": "date-time"},
        "endpoints": {"type": "array", "items": {"type": "object",
          "required": ["name", "subject", "queue_group", "num_requests", "num_errors", "last_error", "processing_time", "average_processing_time"],
          "properties": {"name": {"type": "string"}, "subject": {"type": "string"}, "queue_group": {"type": "string"},
            "num_requests": {"type": "integer", "minimum": 0}, "num_errors": {"type": "integer", "minimum": 0},
            "last_error": {"type": "string"}, "processing_time": {"type": "integer"}, "average_processing_time": {"type": "integer"}}}}}}
  }
}`

func adr32Schema(t testing.TB, name string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat = true
	if err := c.AddResource("adr32.json", strings.NewReader(adr32)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("adr32.json#/$defs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAgentIsANATSMicroService(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{Version: "0.1.0"}), mesh.Agent{
		Entity: "agent.team.reviewer", Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
			if strings.Contains(string(task.Envelope.Payload), "fail") {
				return nil, envelope.Errorf("E_MINE", "no luck")
			}
			return json.RawMessage(`{"ok":true}`), nil
		}),
		Version: "1.2.3-rc.1", Description: "Reviews code", AgentID: "did:example:1", Concurrency: 2, Queue: 7,
		Intents: reviewIntents(t), Metadata: map[string]string{"team": "red", "entity": "agent.other"},
	})
	for _, payload := range []string{`{"path":"a"}`, `{"path":"b"}`, `{"path":"fail"}`} {
		r.request(newTask("agent.team.reviewer", "code.review", payload))
	}
	r.requestRaw("agent.team.reviewer", []byte("{"), nil)
	r.requestRaw("aee.ask.agent.team.reviewer", []byte("fail"), nil)
	eventually(t, "the places are free", func() bool { // a task keeps its place until after its answer
		var stats micro.Stats
		r.decodeService("$SRV.STATS", "stats", &stats)
		return strings.Contains(string(stats.Endpoints[0].Data), `"running":0`)
	})

	var ping micro.Ping
	r.decodeService("$SRV.PING", "ping", &ping)
	identity := micro.ServiceIdentity{Name: "agent-team-reviewer", ID: ping.ID, Version: "1.2.3-rc.1", Metadata: map[string]string{
		"entity": "agent.team.reviewer", "agent_id": "did:example:1", "aee_version": "1", "aeemesh_version": "0.1.0", "concurrency": "2", "queue": "7", "team": "red", "handoff": "1", "durable": "off", "signatures": "verify-if-present",
		"intents": "aee.capability.list,aee.context.fetch,aee.context.refute,aee.spec.query,aee.status.health,aee.status.ping,aee.validate.payload,code.review,mesh.task.cancel,mesh.task.migrate,mesh.task.pause,mesh.task.resume,mesh.task.settle,mesh.task.steer",
	}}
	for _, suffix := range []string{"", ".agent-team-reviewer", ".agent-team-reviewer." + ping.ID} {
		var ping micro.Ping
		r.decodeService("$SRV.PING"+suffix, "ping", &ping)
		equal(t, "ping"+suffix, ping, micro.Ping{ServiceIdentity: identity, Type: micro.PingResponseType})
		var info micro.Info
		r.decodeService("$SRV.INFO"+suffix, "info", &info)
		equal(t, "info"+suffix, info, micro.Info{ServiceIdentity: identity, Type: micro.InfoResponseType, Description: "Reviews code", Endpoints: []micro.EndpointInfo{
			{Name: "task", Subject: "agent.team.reviewer", QueueGroup: "q", Metadata: map[string]string{"format": "application/json,application/cbor"}},
			{Name: "ask", Subject: "aee.ask.agent.team.reviewer", QueueGroup: "q", Metadata: map[string]string{"format": "text/plain"}},
		}})
		var stats micro.Stats
		r.decodeService("$SRV.STATS"+suffix, "stats", &stats)
		for _, e := range stats.Endpoints {
			if e.ProcessingTime <= 0 || e.AverageProcessingTime != e.ProcessingTime/time.Duration(e.NumRequests) {
				t.Errorf("%s: %v in all, %v on average of %d", e.Name, e.ProcessingTime, e.AverageProcessingTime, e.NumRequests)
			}
			e.ProcessingTime, e.AverageProcessingTime = 0, 0
		}
		if age := time.Since(stats.Started); age < 0 || age > time.Minute {
			t.Errorf("started %v", stats.Started)
		}
		var counters map[string]any
		json.Unmarshal(stats.Endpoints[0].Data, &counters)
		equal(t, "counters", counters, map[string]any{"status": "healthy", "running": 0., "queued": 0., "malformed": 1., "refused": 0., "busy": 0., "replayed": 0., "unexpected": 0., "dropped": 0., "reply_failed": 0., "panics": 0., "replay_early": 0.})
		stats.Endpoints[0].Data = nil
		equal(t, "task stats"+suffix, *stats.Endpoints[0], micro.EndpointStats{Name: "task", Subject: "agent.team.reviewer", QueueGroup: "q", NumRequests: 4, NumErrors: 2, LastError: "E_INVALID_ENVELOPE:a member's name must be a string at byte 1"})
		equal(t, "ask stats"+suffix, *stats.Endpoints[1], micro.EndpointStats{Name: "ask", Subject: "aee.ask.agent.team.reviewer", QueueGroup: "q", NumRequests: 1, NumErrors: 1, LastError: "E_MINE:no luck"})
	}
	// Without a reply subject nothing happens.
	r.nc.Publish("$SRV.PING", nil)
	r.ping("agent.team.reviewer")
}

func (r *rig) decodeService(subject, schema string, into any) {
	r.t.Helper()
	msg := r.requestRaw(subject, nil, nil)
	var v any
	if err := json.Unmarshal(msg.Data, &v); err != nil {
		r.t.Fatal(err)
	}
	if err := adr32Schema(r.t, schema).Validate(v); err != nil {
		r.t.Errorf("%s: %#v", subject, err)
	}
	if err := json.Unmarshal(msg.Data, into); err != nil {
		r.t.Fatal(err)
	}
}

func TestDiscoverListsTheMeshsOwnWorkers(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newRig(t)
	for _, c := range []struct {
		prefix, entity string
		workers        int
	}{{"", "agent.a", 2}, {"", "agent.b", 1}, {"acme", "agent.a", 1}} {
		for range c.workers {
			r.serve(r.node(mesh.Config{Prefix: c.prefix}), mesh.Agent{Entity: c.entity, Handler: echo})
		}
	}
	other, err := micro.AddService(r.nc, micro.Config{Name: "other", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Stop()
	for _, c := range []struct {
		prefix, entity string
		want           []string
	}{{"", "", []string{"agent.a", "agent.a", "agent.b"}}, {"", "agent.b", []string{"agent.b"}}, {"acme", "", []string{"agent.a"}}, {"acme", "agent.b", nil}, {"empty", "", nil}} {
		node := r.node(mesh.Config{Prefix: c.prefix})
		// Who answers late is not waited for.
		eventually(t, fmt.Sprintf("%q of %q are %q", c.entity, c.prefix, c.want), func() bool {
			got, err := node.Discover(t.Context(), c.entity, 2*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			own := true
			for _, in := range got {
				names = append(names, in.Entity)
				own = own && in.Stats != nil && in.Stats.ID == in.Info.ID
			}
			return own && slices.Equal(names, c.want)
		})
	}
	took, err := r.node(mesh.Config{}).Ping(t.Context(), "agent.a")
	if err != nil || took <= 0 {
		t.Errorf("Ping: %v, %v", took, err)
	}
	empty, err := newRig(t).node(mesh.Config{}).Discover(t.Context(), "", time.Second)
	if err != nil || len(empty) != 0 {
		t.Errorf("where nobody is: %v, %v", empty, err)
	}
}

// A worker that answers later than all others is found by the name of its entity: that it is
// absent is believed only after the whole wait.
func TestDiscoverWaitsForAWorkerOfTheEntity(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: echo})
	const slow = "agent.slow"
	for verb, kind := range map[micro.Verb]string{micro.InfoVerb: micro.InfoResponseType, micro.StatsVerb: micro.StatsResponseType} {
		_, err := r.nc.Subscribe("$SRV."+verb.String(), func(msg *nats.Msg) {
			time.AfterFunc(700*time.Millisecond, func() {
				_ = msg.Respond(fmt.Appendf(nil, `{"type":%q,"name":"slow","id":"SLOW","version":"1.0.0","metadata":{"entity":%q}}`, kind, slow))
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	got, err := r.node(mesh.Config{}).Discover(t.Context(), slow, patience)
	if err != nil || len(got) != 1 || got[0].Entity != slow || got[0].Stats == nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// Two entities may have one name as a NATS micro service. Each is found, and pinged, as itself.
func TestEntitiesOfOneServiceNameAreToldApart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node := r.node(mesh.Config{})
	entities := []string{"agent.a.b", "agent.a-b"}
	if x, y := subject.ServiceName(entities[0]), subject.ServiceName(entities[1]); x != y {
		t.Fatal(x, y)
	}
	ids := map[string]string{}
	for _, e := range entities {
		r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: e, Handler: echo})
	}
	for _, e := range entities {
		for what, look := range map[string]func() ([]mesh.Instance, error){
			"workers":  func() ([]mesh.Instance, error) { return node.Workers(t.Context(), e, patience) },
			"discover": func() ([]mesh.Instance, error) { return node.Discover(t.Context(), e, patience) },
		} {
			found, err := look()
			if err != nil || len(found) != 1 || found[0].Entity != e {
				t.Fatalf("%s: %s: %+v, %v", e, what, found, err)
			}
			ids[e] = found[0].Info.ID
		}
		if _, err := node.Ping(t.Context(), e); err != nil {
			t.Error(e, err)
		}
	}
	for i, e := range entities {
		if _, _, err := node.PingInstance(t.Context(), e, ids[e]); err != nil {
			t.Error(e, err)
		}
		if _, _, err := node.PingInstance(t.Context(), e, ids[entities[1-i]]); err == nil {
			t.Errorf("a worker of %s answers for %s", entities[1-i], e)
		}
	}
}

// What micro calls processing time is the work alone: a task that waited in the queue
// and was never begun took none.
func TestProcessingTimeIsWithoutTheQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: reviewer, Concurrency: 1, Handler: g})
	r.send(newTask(reviewer, "code.review", `{}`))
	<-g.entered
	waits := newTask(reviewer, "code.review", `{}`)
	waits.Requires = json.RawMessage(`{"timeout_ms":100}`)
	equal(t, "the one that waits", r.request(waits).Type, envelope.TypeError)
	var stats micro.Stats
	r.decodeService("$SRV.STATS", "stats", &stats)
	equal(t, "answered", stats.Endpoints[0].NumRequests, 1)
	equal(t, "processing time", stats.Endpoints[0].ProcessingTime, time.Duration(0))
}

package intents_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/schema"
)

var reserved = []string{
	intents.CapabilityList, intents.ContextFetch, intents.ContextRefute, intents.SpecQuery,
	intents.StatusHealth, intents.StatusPing, intents.ValidatePayload,
}

var commands = []string{intents.TaskCancel, intents.TaskMigrate, intents.TaskPause, intents.TaskResume, intents.TaskSettle, intents.TaskSteer}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func TestReservedIntentsAreThereWithAllSchemas(t *testing.T) {
	t.Parallel()
	r := intents.NewRegistry()
	if got, want := r.List(""), append(slices.Clone(reserved), commands...); !slices.Equal(got, want) {
		t.Errorf("a new registry lists %v, want %v", got, want)
	}
	for _, name := range r.List("") {
		for _, v := range []intents.Variant{intents.Task, intents.Result, intents.Error} {
			text, err := os.ReadFile(fmt.Sprintf("%s.%s.schema.json", name, v))
			if s := r.Schema(name, v); err != nil || s == nil || string(s.JSON()) != string(text) {
				t.Errorf("%s has no %s schema, or another one: %v", name, v, err)
			}
		}
	}
}

// The error payloads are those of the draft, the same for every intent.
func TestErrorSchemasDifferInTitleAlone(t *testing.T) {
	t.Parallel()
	r := intents.NewRegistry()
	var first map[string]any
	for _, name := range r.List("") {
		var doc map[string]any
		if err := json.Unmarshal(r.Schema(name, intents.Error).JSON(), &doc); err != nil {
			t.Fatal(err)
		}
		delete(doc, "title")
		if first == nil {
			first = doc
		} else if !reflect.DeepEqual(first, doc) {
			t.Errorf("%s: %v differs from %v", name, doc, first)
		}
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"ops.backup.status.check": true, "docs.summarize.with_citations": true, "abc": true, "a.b": true, "A-1.b_2": true, "aee.status.ping": true,
		strings.Repeat("a", 128): true, strings.Repeat("a", 129): false,
		"": false, "ab": false, "a..b": false, ".ab": false, "ab.": false, "a b": false, "a.*": false, "a.>": false, "é.x.y": false, "a/b": false, "a\nb": false, "a.b\x00": false,
	} {
		err := intents.CheckName(name)
		var e *intents.NameError
		if (err == nil) != ok || err != nil && !errors.As(err, &e) {
			t.Errorf("%q: %v, want ok %v", name, err, ok)
		}
	}
}

func TestReservedNamesAreRefusedToApplications(t *testing.T) {
	t.Parallel()
	r := intents.NewRegistry()
	for name, word := range map[string]string{
		"aee.status.ping": "protocol", "aee.mine": "protocol", "AEE.mine": "protocol", "aee.ext.decision_evidence": "protocol", "aee": "protocol",
		"mesh.task.cancel": "mesh", "mesh.mine": "mesh", "Mesh.x": "mesh",
	} {
		for how, register := range map[string]func(...intents.Definition) error{"register": r.Register, "replace": r.Replace} {
			err := register(intents.Definition{Intent: name})
			var e *intents.NameError
			if !errors.Is(err, intents.ErrReserved) || !errors.As(err, &e) || !strings.Contains(err.Error(), word) {
				t.Errorf("%s %s: %v", how, name, err)
			}
		}
	}
	for _, name := range []string{"aeex.mine", "meshes.mine", "my.aee.x", intents.AgentAsk} {
		if err := r.Register(intents.Definition{Intent: name}); err != nil {
			t.Error(err)
		}
	}
	if err := r.Validate(intents.StatusPing, intents.Task, raw(`{"x":1}`)); err == nil {
		t.Error("a reserved schema was replaced")
	}
}

func TestRegisterIsAllOrNothingAndReportsAll(t *testing.T) {
	t.Parallel()
	r := intents.NewRegistry()
	if err := r.Register(intents.Definition{Intent: "app.old"}); err != nil {
		t.Fatal(err)
	}
	err := r.Register(
		intents.Definition{Intent: "app.good", Task: raw(`{"type":"object"}`)},
		intents.Definition{Intent: "app.bad", Task: raw(`{"type":"float"}`), Result: raw(`{"$ref":"file:///etc/passwd"}`)},
		intents.Definition{Intent: "app.text", Result: raw(`{"type":"string"}`)},
		intents.Definition{Intent: "aee.mine"},
		intents.Definition{Intent: "a b"},
		intents.Definition{Intent: "app.old"},
		intents.Definition{Intent: "app.good"},
	)
	for _, want := range []string{"task schema of app.bad", "result schema of app.bad", "no object fits it", `"aee.mine"`, `"a b"`, `registered already: "app.old"`, `"app.good", twice`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: nothing about %s", err, want)
		}
	}
	if !errors.Is(err, intents.ErrReserved) || !errors.Is(err, intents.ErrRegistered) {
		t.Errorf("%v: sentinels are lost", err)
	}
	if r.Has("app.good") {
		t.Error("a part was registered")
	}
}

func TestReplaceOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	r := intents.NewRegistry()
	old := intents.FromIO("app.x", raw(`{"required":["a"]}`), nil)
	fresh := intents.FromIO("app.x", raw(`{"required":["b"]}`), raw("null"))
	if err := r.Register(old); err != nil {
		t.Fatal(err)
	}
	if err := r.Register(fresh); !errors.Is(err, intents.ErrRegistered) {
		t.Errorf("second registration: %v", err)
	}
	if err := r.Validate("app.x", intents.Task, raw(`{"a":1}`)); err != nil {
		t.Error(err)
	}
	if err := r.Replace(fresh); err != nil {
		t.Fatal(err)
	}
	if err := r.Validate("app.x", intents.Task, raw(`{"a":1}`)); err == nil {
		t.Error("the old schema is still in force")
	}
	if r.Schema("app.x", intents.Result) != nil {
		t.Error("null became a schema")
	}
}

func TestValidateByIntentAndVariant(t *testing.T) {
	t.Parallel()
	r := intents.NewRegistry()
	if err := r.Register(intents.Definition{Intent: "app.x", Task: raw(`{"required":["a"]}`)}); err != nil {
		t.Fatal(err)
	}
	var e *intents.ValidationError
	if err := r.Validate("app.x", intents.Task, raw(`{}`)); !errors.As(err, &e) || e.Subject != "task payload of app.x" ||
		err.Error() != `task payload of app.x does not fit its schema: (root): lacks the property "a" (required)` {
		t.Errorf("%v", err)
	}
	for _, v := range []intents.Variant{intents.Result, intents.Error, "stream"} {
		if err := r.Validate("app.x", v, raw(`{}`)); err != nil {
			t.Errorf("%s has no schema: %v", v, err)
		}
	}
	if err := r.Validate("app.y", intents.Task, raw(`{}`)); !errors.Is(err, intents.ErrUnknownIntent) {
		t.Errorf("unknown intent: %v", err)
	}
}

func TestListByNamespace(t *testing.T) {
	t.Parallel()
	r := intents.NewRegistry()
	for _, name := range []string{"ops.b", "ops.a", "ops", "opsec.a", "docs.a"} {
		if err := r.Register(intents.Definition{Intent: name}); err != nil {
			t.Fatal(err)
		}
	}
	for filter, want := range map[string]string{
		"ops": "ops ops.a ops.b", "ops.": "ops ops.a ops.b", "ops.*": "ops ops.a ops.b", "ops.a": "ops.a", "op": "", "none": "",
		"aee.status": "aee.status.health aee.status.ping",
	} {
		if got := strings.Join(r.List(filter), " "); got != want {
			t.Errorf("List(%q) = %s, want %s", filter, got, want)
		}
	}
	for _, all := range []string{"", "*"} {
		if got := r.List(all); len(got) != 5+len(reserved)+len(commands) || !slices.IsSorted(got) {
			t.Errorf("List(%q) = %v", all, got)
		}
	}
}

func TestReadFS(t *testing.T) {
	t.Parallel()
	good := fstest.MapFS{
		"app.x.task.schema.json":   {Data: []byte(`{"required":["a"]}`)},
		"app.x.result.schema.json": {Data: []byte(`{}`)},
		"app.x.error.schema.json":  {Data: []byte(`true`)},
		"app.y.error.schema.json":  {Data: []byte(`{}`)},
		"README.md":                {Data: []byte("about")},
		"other.json":               {Data: []byte("{")},
		"sub/z.task.schema.json":   {Data: []byte("{")},
	}
	r := intents.NewRegistry()
	names, err := r.LoadFS(good)
	if err != nil || strings.Join(names, " ") != "app.x app.y" {
		t.Fatalf("%v, %v", names, err)
	}
	if err := r.Validate("app.x", intents.Task, raw(`{}`)); err == nil {
		t.Error("the schema from the folder is not in force")
	}
	for name, c := range map[string]struct {
		file, text, want string
	}{
		"no variant":    {"app.x.schema.json", "{}", "a schema file is named"},
		"slip":          {"app.x.tsk.schema.json", "{}", "a schema file is named"},
		"bare":          {"task.schema.json", "{}", "a schema file is named"},
		"empty":         {"app.x.task.schema.json", " \n", "holds no schema"},
		"null":          {"app.x.task.schema.json", "null", "holds no schema"},
		"large":         {"app.x.task.schema.json", strings.Repeat(" ", schema.MaxBytes+1), "is larger than"},
		"broken":        {"app.x.task.schema.json", "{", "not well-formed"},
		"reserved":      {"aee.status.ping.task.schema.json", "{}", "the protocol's own"},
		"mesh":          {"mesh.x.task.schema.json", "{}", "the mesh's own"},
		"name":          {"app..x.task.schema.json", "{}", "empty token"},
		"loads a file":  {"app.x.task.schema.json", `{"$ref":"other.json"}`, "never loaded"},
		"fits nothing":  {"app.x.task.schema.json", `false`, "no object fits"},
		"only an array": {"app.x.task.schema.json", `{"type":["array","null"]}`, "no object fits"},
	} {
		r := intents.NewRegistry()
		_, err := r.LoadFS(fstest.MapFS{c.file: {Data: []byte(c.text)}, "app.z.task.schema.json": {Data: []byte("{}")}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if r.Has("app.z") {
			t.Errorf("%s: a part was registered", name)
		}
	}
}

func TestLoadDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "app.x.task.schema.json"), []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := intents.NewRegistry()
	if names, err := r.LoadDir(dir); err != nil || !slices.Equal(names, []string{"app.x"}) {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := r.LoadDir(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such folder: %v", err)
	}
}

func TestRegistryUnderConcurrentUse(t *testing.T) {
	t.Parallel()
	r := intents.NewRegistry()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				name := fmt.Sprintf("app.g%d.n%d", g, i)
				if err := r.Register(intents.Definition{Intent: name, Task: raw(`{"required":["a"]}`)}); err != nil {
					t.Error(err)
				}
				if err := r.Validate(name, intents.Task, raw(`{"b":1}`)); err == nil {
					t.Errorf("%s is not in force", name)
				}
				if err := r.Validate(intents.StatusPing, intents.Result, raw(`{"pong":true}`)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(r.List("app")); got != 200 {
		t.Errorf("%d intents, want 200", got)
	}
}

func TestAnswerCapabilityList(t *testing.T) {
	t.Parallel()
	r := intents.NewRegistry()
	if err := r.Register(intents.Definition{Intent: "app.x"}); err != nil {
		t.Fatal(err)
	}
	for task, want := range map[string]string{
		`{}`:                                 `{"intents":["aee.capability.list","aee.context.fetch","aee.context.refute","aee.spec.query","aee.status.health","aee.status.ping","aee.validate.payload","app.x","mesh.task.cancel","mesh.task.migrate","mesh.task.pause","mesh.task.resume","mesh.task.settle","mesh.task.steer"]}`,
		`{"namespace_filter":"app"}`:         `{"intents":["app.x"]}`,
		`{"namespace_filter":"none"}`:        `{"intents":[]}`,
		`{"Namespace_Filter":"app","n":1e5}`: `{"intents":["aee.capability.list","aee.context.fetch","aee.context.refute","aee.spec.query","aee.status.health","aee.status.ping","aee.validate.payload","app.x","mesh.task.cancel","mesh.task.migrate","mesh.task.pause","mesh.task.resume","mesh.task.settle","mesh.task.steer"]}`,
	} {
		answer, err := r.AnswerCapabilityList(raw(task))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := json.Marshal(answer)
		if string(got) != want {
			t.Errorf("%s: %s", task, got)
		}
		if err := r.Validate(intents.CapabilityList, intents.Result, got); err != nil {
			t.Error(err)
		}
	}
	var e *intents.ValidationError
	for task, want := range map[string]string{
		`{"namespace_filter":"app","schemas":true}`:    `{"app.x":{"task":{"required":["a"]}},"app.y":{}}`,
		`{"schemas":true}`:                             `{"app.x":{"task":{"required":["a"]}},"app.y":{}}`,
		`{"namespace_filter":"app"}`:                   `null`,
		`{"namespace_filter":"app","schemas":"app.x"}`: `null`,
		`{"namespace_filter":"app","schemas":null}`:    `null`,
	} {
		r := intents.NewRegistry()
		if err := r.Register(intents.Definition{Intent: "app.x", Task: raw(`{"required":["a"]}`)}, intents.Definition{Intent: "app.y"}); err != nil {
			t.Fatal(err)
		}
		answer, err := r.AnswerCapabilityList(raw(task))
		if got, _ := json.Marshal(answer.Schemas); err != nil || string(got) != want {
			t.Errorf("%s: schemas %s, %v, want %s", task, got, err, want)
		}
	}
	large := intents.NewRegistry()
	for i := range 4 {
		if err := large.Register(intents.Definition{Intent: fmt.Sprintf("app.x%d", i), Task: raw(`{"description":"` + strings.Repeat("x", 200<<10) + `"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if answer, err := large.AnswerCapabilityList(raw(`{"schemas":true}`)); err != nil || len(answer.Schemas) != 2 {
		t.Errorf("of schemas beyond the bound %d are told, %v, want 2", len(answer.Schemas), err)
	}
	if _, err := r.AnswerCapabilityList(raw(`{"namespace_filter":1}`)); !errors.As(err, &e) {
		t.Errorf("%v", err)
	}
}

func TestAnswerValidatePayload(t *testing.T) {
	t.Parallel()
	r := intents.NewRegistry()
	if err := r.Register(intents.Definition{Intent: "app.x", Task: raw(`{"required":["a","b"]}`)}); err != nil {
		t.Fatal(err)
	}
	for task, want := range map[string]string{
		`{"intent":"app.x","payload_to_validate":{"a":1,"b":2}}`:                                         `{"valid":true}`,
		`{"intent":"app.x","payload_to_validate":{}}`:                                                    `{"valid":false,"errors":["(root): lacks the property \"a\" (required)","(root): lacks the property \"b\" (required)"]}`,
		`{"intent":"app.x","payload_to_validate":{},"type_hint":"result"}`:                               `{"valid":true}`,
		`{"intent":"aee.status.ping","payload_to_validate":{"pong":false},"type_hint":"result"}`:         `{"valid":false,"errors":["/pong: must be true (const)"]}`,
		`{"intent":"aee.status.health","payload_to_validate":{"status":"healthy"},"type_hint":"result"}`: `{"valid":true}`,
	} {
		answer, err := r.AnswerValidatePayload(raw(task))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := json.Marshal(answer)
		if string(got) != want {
			t.Errorf("%s: %s", task, got)
		}
		if err := r.Validate(intents.ValidatePayload, intents.Result, got); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.AnswerValidatePayload(raw(`{"intent":"app.y","payload_to_validate":{}}`)); !errors.Is(err, intents.ErrUnknownIntent) {
		t.Errorf("%v", err)
	}
	var e *intents.ValidationError
	if _, err := r.AnswerValidatePayload(raw(`{"intent":"app.x","payload_to_validate":1,"type_hint":"event"}`)); !errors.As(err, &e) || len(e.Problems) != 2 {
		t.Errorf("%v", err)
	}
}

// The payloads that the Go types encode fit the schemas, and are decoded to equal values.
func TestPayloadTypesFitTheirSchemas(t *testing.T) {
	t.Parallel()
	r := intents.NewRegistry()
	for _, c := range []struct {
		intent  string
		variant intents.Variant
		payload any
		want    string
	}{
		{intents.StatusPing, intents.Task, intents.Empty{}, `{}`},
		{intents.StatusPing, intents.Result, intents.PingResult{Pong: true, TS: "2025-12-14T03:45:12Z"}, `{"pong":true,"ts":"2025-12-14T03:45:12Z"}`},
		{intents.StatusHealth, intents.Result, intents.HealthResult{Status: intents.Degraded, Details: map[string]any{"queue": "full"}}, `{"status":"degraded","details":{"queue":"full"}}`},
		{intents.SpecQuery, intents.Result, intents.SpecQueryResult{AEEVersion: "1", Extensions: []string{intents.ExtDecisionEvidence}}, `{"aee_version":"1","extensions":["aee.ext.decision_evidence"]}`},
		{intents.CapabilityList, intents.Task, intents.CapabilityListTask{NamespaceFilter: "ops"}, `{"namespace_filter":"ops"}`},
		{intents.CapabilityList, intents.Result, intents.CapabilityListResult{Intents: []string{"a.b"}}, `{"intents":["a.b"]}`},
		{intents.ContextFetch, intents.Task, intents.FetchTask{ID: "01JFB2R1", Corr: "01JFB2QX", Locator: "store://x", Hash: "sha256:a"}, `{"id":"01JFB2R1","corr":"01JFB2QX","locator":"store://x","hash":"sha256:a"}`},
		{intents.ContextFetch, intents.Result, intents.FetchResult{}, `{"found":false}`},
		{intents.ContextFetch, intents.Result, intents.FetchResult{Found: true, Envelope: raw(`{"v":"1"}`), Hash: "sha256:a", Refutations: []intents.Refutation{{By: "agent.a", Reason: "stale", TS: "2025-12-14T03:45:12Z"}}},
			`{"found":true,"envelope":{"v":"1"},"hash":"sha256:a","refutations":[{"by":"agent.a","reason":"stale","ts":"2025-12-14T03:45:12Z"}]}`},
		{intents.ContextRefute, intents.Task, intents.RefuteTask{ID: "01JFB2R1", Reason: "stale"}, `{"id":"01JFB2R1","reason":"stale"}`},
		{intents.ContextRefute, intents.Result, intents.RefuteResult{Acknowledged: true}, `{"acknowledged":true}`},
		{intents.ValidatePayload, intents.Task, intents.ValidateTask{Intent: "a.b", PayloadToValidate: raw(`{"x":1}`), TypeHint: intents.Error}, `{"intent":"a.b","payload_to_validate":{"x":1},"type_hint":"error"}`},
		{intents.ValidatePayload, intents.Result, intents.ValidateResult{Errors: []string{"x"}}, `{"valid":false,"errors":["x"]}`},
		{intents.TaskCancel, intents.Task, intents.CancelTask{ID: "01JFB2R1", Reason: "enough"}, `{"id":"01JFB2R1","reason":"enough"}`},
		{intents.TaskCancel, intents.Result, intents.CancelResult{Cancelled: true}, `{"cancelled":true}`},
		{intents.TaskCancel, intents.Task, intents.CancelTask{Run: "6f9d0c58", Durable: true}, `{"run":"6f9d0c58","durable":true}`},
		{intents.TaskPause, intents.Task, intents.PauseTask{Target: intents.Target{ID: "01JFB2R1", Durable: true}}, `{"id":"01JFB2R1","durable":true}`},
		{intents.TaskPause, intents.Result, intents.CommandResult{Paused: true, Runs: []string{"6f9d"}, Status: "pausing"}, `{"paused":true,"runs":["6f9d"],"status":"pausing"}`},
		{intents.TaskResume, intents.Task, intents.ResumeTask{Target: intents.Target{Corr: "01JFB2QX"}, Reason: "go"}, `{"corr":"01JFB2QX","reason":"go"}`},
		{intents.TaskResume, intents.Result, intents.CommandResult{Resumed: true}, `{"resumed":true}`},
		{intents.TaskSteer, intents.Task, intents.SteerTask{Target: intents.Target{Run: "6f9d0c58"}, Text: "be brief"}, `{"run":"6f9d0c58","text":"be brief"}`},
		{intents.TaskSteer, intents.Result, intents.CommandResult{Steered: true}, `{"steered":true}`},
		{intents.TaskSettle, intents.Task, intents.SettleTask{Target: intents.Target{ID: "01JFB2R1"}, Call: "c1", Outcome: intents.OutcomeDone, Result: raw(`{"sent":true}`)},
			`{"id":"01JFB2R1","call":"c1","outcome":"done","result":{"sent":true}}`},
		{intents.TaskSettle, intents.Result, intents.CommandResult{Settled: true}, `{"settled":true}`},
		{intents.TaskMigrate, intents.Task, intents.MigrateTask{Target: intents.Target{Run: "6f9d0c58"}, To: "any", WaitMS: 500}, `{"run":"6f9d0c58","to":"any","wait_ms":500}`},
		{intents.TaskMigrate, intents.Task, intents.MigrateTask{Target: intents.Target{ID: "01JFB2R1"}, Abort: true}, `{"id":"01JFB2R1","abort":true}`},
		{intents.TaskMigrate, intents.Result, intents.CommandResult{Migrating: true, Status: "moving"}, `{"migrating":true,"status":"moving"}`},
	} {
		got, err := json.Marshal(c.payload)
		if err != nil || string(got) != c.want {
			t.Errorf("%T: %s, %v; want %s", c.payload, got, err, c.want)
		}
		if err := r.Validate(c.intent, c.variant, got); err != nil {
			t.Error(err)
		}
		back := reflect.New(reflect.TypeOf(c.payload))
		if err := json.Unmarshal(got, back.Interface()); err != nil || !reflect.DeepEqual(back.Elem().Interface(), c.payload) {
			t.Errorf("%T comes back as %+v, %v", c.payload, back.Elem(), err)
		}
	}
	for _, payload := range []string{`{}`, `{"reason":"x"}`, `{"id":"short"}`, `{"id":1}`} {
		if err := r.Validate(intents.TaskCancel, intents.Task, raw(payload)); err == nil {
			t.Errorf("cancel %s: nothing to stop is named", payload)
		}
	}
	for intent, payload := range map[string]string{
		intents.TaskPause: `{"reason":"x"}`, intents.TaskResume: `{}`, intents.TaskSteer: `{"id":"01JFB2R1"}`, intents.TaskSettle: `{"id":"01JFB2R1","outcome":"maybe"}`, intents.TaskMigrate: `{"id":"01JFB2R1"}`,
	} {
		if err := r.Validate(intent, intents.Task, raw(payload)); err == nil {
			t.Errorf("%s %s passed", intent, payload)
		}
	}
	for _, c := range []intents.Command{intents.CancelTask{}, intents.PauseTask{}, intents.ResumeTask{}, intents.SteerTask{}, intents.SettleTask{}, intents.MigrateTask{}} {
		if !slices.Contains(commands, c.CommandIntent()) {
			t.Errorf("%T has intent %s", c, c.CommandIntent())
		}
	}
}

func TestCheckEvidence(t *testing.T) {
	t.Parallel()
	const (
		minimal  = `"decision":"merge","reason_summary":"tests pass"`
		standard = minimal + `,"inputs_used":["diff"],"tools_used":[],"action_taken":"merged","confidence":0.9`
		full     = standard + `,"context_refs":["01JFB2R1"]`
	)
	payload := func(evidence string) json.RawMessage {
		return raw(`{"text":"x","decision_evidence":{` + evidence + `}}`)
	}
	levels := []intents.EvidenceLevel{"", intents.EvidenceNone, intents.EvidenceMinimal, intents.EvidenceStandard, intents.EvidenceFull}
	for i, c := range []struct {
		payload json.RawMessage
		highest int // index into levels of the last level with content
	}{
		{raw(`{}`), 1}, {raw(`{"decision_evidence":"because"}`), 1}, {payload(``), 1}, {payload(`"decision":"","reason_summary":"x"`), 1},
		{payload(minimal + `,"mood":"good"`), 1}, {payload(minimal + `,"confidence":1.5`), 1}, {payload(minimal + `,"inputs_used":[1]`), 1},
		{payload(minimal), 2}, {payload(standard), 3}, {payload(full), 4}, {payload(standard + `,"context_refs":[]`), 4},
		{payload(standard + `,"context_refs":[""]`), 1},
	} {
		for n, level := range levels {
			if err := intents.CheckEvidence(level, c.payload); (err == nil) != (n <= c.highest) {
				t.Errorf("case %d, level %q: %v", i, level, err)
			}
		}
	}
	var e *intents.ValidationError
	if err := intents.CheckEvidence(intents.EvidenceStandard, payload(minimal+`,"inputs_used":[1]`)); !errors.As(err, &e) || !strings.Contains(fmt.Sprint(e.Problems), "/decision_evidence/inputs_used/0: must be string") || len(e.Problems) != 4 {
		t.Errorf("%v", err)
	}
	if err := intents.CheckEvidence("total", payload(full)); err == nil {
		t.Error("an unknown level passed")
	}
	confidence := 0.5
	text, _ := json.Marshal(map[string]any{intents.EvidenceMember: intents.DecisionEvidence{
		InputsUsed: []string{}, ContextRefs: []string{}, ToolsUsed: []string{}, Decision: "d", ReasonSummary: "r", ActionTaken: "a", Confidence: &confidence,
	}})
	if err := intents.CheckEvidence(intents.EvidenceFull, text); err != nil {
		t.Errorf("%s: %v", text, err)
	}
}

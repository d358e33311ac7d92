package aaif

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// The credentials in this file are made up, and taken apart so that no scanner takes the file for a leak.
var madeUp = map[string]string{
	"OpenAI":        "sk-" + "proj-" + "Zk3mP9qLx7RtVb2NcY8wHd5J",
	"Anthropic":     "sk-" + "ant-api03-" + "Zk3mP9qLx7RtVb2NcY8wHd5J-AA",
	"AWS":           "AKIA" + "IOSFODNN7EXAMPLE",
	"GitHub":        "ghp" + "_Zk3mP9qLx7RtVb2NcY8wHd5JZk3mP9qLx7Rt",
	"GitHub fine":   "github" + "_pat_11ABCDEFG0Zk3mP9qLx7Rt",
	"GitLab":        "glpat" + "-Zk3mP9qLx7RtVb2NcY8w",
	"Slack":         "xoxb" + "-123456789012-Zk3mP9qLx7Rt",
	"Google":        "AIza" + "SyZk3mP9qLx7RtVb2NcY8wHd5JZk3mP9qLx",
	"Stripe":        "sk_" + "live_Zk3mP9qLx7RtVb2NcY8wHd5J",
	"Hugging Face":  "hf" + "_Zk3mPqLxRtVbNcYwHdJZkmPqLxRtVbNcYw",
	"SendGrid":      "SG" + ".Zk3mP9qLx7RtVb2NcY8wHd.Zk3mP9qLx7RtVb2NcY8wHd",
	"JWT":           "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0.Zk3mP9qLx7RtVb2NcY8wHd",
	"PEM":           "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIE",
	"PEM plain":     "-----BEGIN " + "PRIVATE KEY-----",
	"OpenSSH":       "-----BEGIN " + "OPENSSH PRIVATE KEY-----",
	"nkeys user":    "SU" + "AKYRHVIOREXV7EUZTBHUHL7NUMHPMAS7QMDU3GTIUWEI5LDNOXD43IZY",
	"Bearer":        "Bearer " + "Zk3mP9qLx7RtVb2NcY8wHd5J",
	"Basic":         "Basic " + "YWRhbTpodW50ZXIyMg==",
	"URL password":  "https://adam:" + "hunter2@host.example/x",
	"URL query":     "https://host.example/x?q=1&api_key=" + "Zk3mP9qLx7Rt",
	"URL token":     "https://host.example/x?access_token=" + "abcd",
	"URL key":       "https://host.example/x?key=" + "Zk3mP9qLx7RtVb2NcY8wHd5J",
	"Vault":         "hvs" + ".CAESIZk3mP9qLx7RtVb2NcY8w",
	"Slack webhook": "https://hooks.slack.com/services/" + "T0ABC/B0DEF/Zk3mP9qLx7RtVbNcW2yJ8dFg",
	"Google OAuth":  "ya29" + ".Zk3mP9qLx7RtVbNcW2yJ8dFg",
	"Groq":          "gsk" + "_Zk3mP9qLx7RtVbNcW2yJ8dFgH4sKpQeUaZxT",
	"xAI":           "xai" + "-Zk3mP9qLx7RtVbNcW2yJ8dFgH4sKpQeUaZxT",
	"npm":           "npm" + "_Zk3mP9qLx7RtVbNcW2yJ8dFgH4sKpQeUaZxT",
	"Replicate":     "r8" + "_Zk3mP9qLx7RtVbNcW2yJ8dFgH4sKpQeUaZxT",
	"nkeys PEM":     "-----BEGIN " + "USER NKEY SEED-----",
}

func TestCredentialsAreRefusedWhereverTheyStand(t *testing.T) {
	places := map[string]func(d *Definition, secret string){
		"/agent/instructions":        func(d *Definition, s string) { d.Agent.Instructions = "Use " + s + " to log in." },
		"/agent/constraints/0":       func(d *Definition, s string) { d.Agent.Constraints = []string{s} },
		"/agent/context/0/value":     func(d *Definition, s string) { d.Agent.Context = []Context{{Type: ContextText, Value: s}} },
		"/agent/tools/0/description": func(d *Definition, s string) { d.Agent.Tools = []Tool{{Name: "t", Description: "d " + s}} },
		"/agent/tools/0/endpoint":    func(d *Definition, s string) { d.Agent.Tools = []Tool{{Name: "t", Description: "d", Endpoint: s}} },
		"/agent/tools/0/auth/env_var": func(d *Definition, s string) {
			d.Agent.Tools = []Tool{{Name: "t", Description: "d", Auth: &Auth{EnvVar: s}}}
		},
		"/agent/tools/0/auth/header": func(d *Definition, s string) {
			d.Agent.Tools = []Tool{{Name: "t", Description: "d", Auth: &Auth{Header: "X-Key: " + s}}}
		},
		"/agent/model/base_url": func(d *Definition, s string) { d.Agent.Model = &Model{BaseURL: s} },
		"/agent/model/params/extended/headers/0": func(d *Definition, s string) {
			text, _ := json.Marshal(map[string][]string{"headers": {s}})
			d.Agent.Model = &Model{Params: &Params{Extended: text}}
		},
		"/agent/tools/0/parameters_schema/properties/q/default": func(d *Definition, s string) {
			text, _ := json.Marshal(map[string]any{"properties": map[string]any{"q": map[string]any{"default": s}}})
			d.Agent.Tools = []Tool{{Name: "t", Description: "d", ParametersSchema: text}}
		},
		"/_comment": func(d *Definition, s string) { d.Comment = s },
		"/x-acme/a": func(d *Definition, s string) {
			d.Extensions, _ = json.Marshal(map[string]any{"x-acme": map[string]string{"a": s}})
		},
	}
	for what, secret := range madeUp {
		for pointer, put := range places {
			d := &Definition{Standard: Standard, Agent: Agent{Name: "A", Goal: "G"}}
			put(d, secret)
			_, err := New(d)
			e, ok := err.(*Error)
			if !ok {
				t.Errorf("%s at %s: accepted (%v)", what, pointer, err)
				continue
			}
			if len(e.Problems) != 1 || e.Problems[0].Pointer != pointer || e.Problems[0].Rule != RuleSecret || e.Problems[0].Hint == "" {
				t.Errorf("%s at %s: %+v", what, pointer, e.Problems)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s at %s: the message quotes it: %v", what, pointer, err)
			}
		}
	}
}

func TestSecretNames(t *testing.T) {
	random := "Zk3mP9qLx7RtVb2NcY8wHd5J"
	refused := []string{
		`{"x-a": {"api_key": "` + random + `"}}`,
		`{"x-a": {"apiKey": "` + random + `"}}`,
		`{"x-a": {"Authorization": "` + random + `"}}`,
		`{"x-a": {"client-secret": "` + random + `"}}`,
		`{"x-a": {"token": ["` + random + `"]}}`,
		`{"x-a": {"secret": {"prod": "` + random + `"}}}`,
		`{"x-a": {"token": "9f86d081884c7d659a2feaa0c55ad015"}}`,
		`{"x-a": {"password": "hunter2"}}`,
		`{"x-a": {"passwd": "Correct!Horse"}}`,
		`{"agent": {"tools": [{"parameters_schema": {"properties": {"password": {"type": "string", "default": "hunter2"}}}}]}}`,
		`{"agent": {"tools": [{"parameters_schema": {"properties": {"password": {"examples": ["a", "hunter2"]}}}}]}}`,
		`{"agent": {"tools": [{"parameters_schema": {"properties": {"token": {"enum": ["` + random + `"]}}}}]}}`,
		`{"agent": {"tools": [{"auth": {"env_var": "my secret"}}]}}`,
		`{"agent": {"tools": [{"auth": {"env_var": "hunter-2"}}]}}`,
		`{"agent": {"tools": [{"auth": {"env_var": "a3f5k167f44f4964e6c998dee827110c"}}]}}`,
		`{"agent": {"tools": [{"auth": {"header": "Authorization: hunter2"}}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://adam@host.example/"}]}}`,
		`{"agent": {"model": {"base_url": "http://user:pw@localhost:8080/v1"}}}`,
		`{"agent": {"telemetry": {"otlp_endpoint": "http://user:pw@otel:4317"}}}`,

		// Some services take a token as the user name, and an empty password or any.
		`{"agent": {"tools": [{"endpoint": "https://Zk3mP9qLx7RtVb2N:@host.example/"}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://Zk3mP9qLx7RtVb2N:X@host.example/"}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://Zk3mP9qLx7RtVb2N:x@host.example/"}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://adam:@host.example/"}]}}`,
		`{"agent": {"instructions": "Call https://Zk3mP9qLx7RtVb2N:@host.example/ first."}}`,
		`{"agent": {"instructions": "Call https://Zk3mP9qLx7RtVb2N:X@host.example/ first."}}`,
		`{"agent": {"instructions": "Call https://Zk3mP9qLx7RtVb2N:***@host.example/ first."}}`,
		`{"agent": {"tools": [{"endpoint": "https://Zk3mP9qLx7RtVb2N:_@host.example/"}]}}`,

		// A sign or a word of placeholders does not make a placeholder of it.
		`{"agent": {"tools": [{"endpoint": "https://bot:Pa$$w0rd2024@internal.example/api"}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://bot:example2024@internal.example/api"}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://a$b@internal.example/api"}]}}`,
		`{"agent": {"instructions": "Call https://bot:Pa$$w0rd2024@internal.example/api first."}}`,
		`{"agent": {"instructions": "Call https://bot:yourself@internal.example/api first."}}`,
		`{"agent": {"instructions": "Call https://bot:{env}hunter2@internal.example/api first."}}`,
		`{"agent": {"instructions": "Call https://bot:${PASSWORD:-hunter2}@internal.example/api first."}}`,
		`{"agent": {"tools": [{"endpoint": "https://host.example/x?api_key=Zk3mP9*qLx7Rt"}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://host.example/x?token=example7Rt9"}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://host.example/x?password=your2cents"}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://host.example/x?password=hunter2..."}]}}`,
		`{"agent": {"instructions": "Look it up (see https://host.example/x?api_key=` + random + `)."}}`,
		`{"agent": {"instructions": "Look it up (see https://host.example/x?password=hunter2)."}}`,
		`{"agent": {"instructions": "Call https://bot:hunter2)@host.example/, or not."}}`,
		`{"x-a": {"password": "$input.password!2"}}`,
		`{"x-a": {"password": "$[*]hunter2"}}`,
		`{"x-a": {"password": "hunter$2"}}`,
		`{"x-a": {"password": "Pa$$word"}}`,
		`{"x-a": {"password": "your2cents"}}`,
		`{"x-a": {"password": "hunter2{}"}}`,
		`{"x-a": {"password": "<3hunter2"}}`,
		`{"x-a": {"password": "hunter2..."}}`,
		`{"x-a": {"password": "Dummy#7"}}`,
		`{"x-a": {"token": "your` + random + `"}}`,
	}
	for _, text := range refused {
		if ps := scanSecrets(KindAgent, tree(t, []byte(text))); len(ps) != 1 {
			t.Errorf("%s: %d problems: %v", text, len(ps), ps)
		}
	}
	accepted := []string{
		`{"x-a": {"token": "3c6f9f60-62b8-4c6f-8f3a-6a7a4e2f7d02"}}`,
		`{"x-a": {"token": "the session token of the user"}}`,
		`{"x-a": {"api_key": "${API_KEY}"}}`,
		`{"x-a": {"api_key": "<your key here>"}}`,
		`{"x-a": {"password": "the user's password"}}`,
		`{"x-a": {"password": "{password1}"}}`,
		`{"x-a": {"password": ""}}`,
		`{"x-a": {"password": "{{ password1 }}"}}`,
		`{"x-a": {"password": "$PASSWORD_2"}}`,
		`{"x-a": {"password": "$.input.users[0].password"}}`,
		`{"x-a": {"password": "$input.password"}}`,
		`{"x-a": {"password": "$secrets.db_password"}}`,
		`{"x-a": {"password": "$.creds[*].password"}}`,
		`{"x-a": {"password": "$creds[0].password"}}`,
		`{"x-a": {"password": "********"}}`,
		`{"x-a": {"api_key": "Zk3mP9qLx7RtVb..."}}`,
		`{"agent": {"tools": [{"endpoint": "https://bot:$TOKEN@host.example/"}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://$USER:$PASSWORD@host.example/"}]}}`,
		`{"agent": {"instructions": "Call https://bot:${PASSWORD}@host.example/, https://bot:{password}@host.example/ or https://bot:***@host.example/."}}`,
		`{"agent": {"instructions": "Call https://user:yourpassword@host.example/, https://user:your-password@host.example/ or https://user:CHANGEME@host.example/."}}`,
		`{"agent": {"instructions": "See https://host.example/x?api_key=YOUR_OPENAI_API_KEY&token=xxxx-xxxx-xxxx&secret=abcd...&apikey=api-key-example"}}`,
		`{"agent": {"instructions": "See https://host.example/x?token={user}.{token}&api_key=env:API_KEY2&secret=change-me"}}`,
		`{"agent": {"instructions": "Look it up (see https://h.example/x?api_key=YOUR_KEY)"}}`,
		"{\"agent\": {\"instructions\": \"Look it up with `https://h.example/x?api_key={key}`.\"}}",
		`{"agent": {"instructions": "Call https://h.example/x?token={token}, then [that](https://h.example/x?api_key=YOUR_KEY), or **https://h.example/x?password=$PASSWORD**!"}}`,
		`{"agent": {"instructions": "See [https://h.example/x?api_key=abcd...], {\\\"url\\\": \\\"https://h.example/x?api_key={key}\\\"}"}}`,
		`{"x-a": {"max_tokens": 5, "token_count": 5, "tokenizer": "cl100k_base", "sha": "9f86d081884c7d659a2feaa0c55ad015"}}`,
		`{"agent": {"tools": [{"parameters_schema": {"required": ["password"], "properties": {"password": {"type": "string", "format": "password", "minLength": 8, "pattern": "^[A-Za-z0-9]{8,}$", "description": "At least 8 characters, with a digit such as 7"}}}}]}}`,
		`{"agent": {"tools": [{"auth": {"env_var": "BILLING_API_TOKEN_2"}}]}}`,
		`{"agent": {"tools": [{"auth": {"env_var": "${BILLING_API_TOKEN}"}}]}}`,
		`{"agent": {"tools": [{"auth": {"header": "X-API-Key"}}]}}`,
		`{"agent": {"tools": [{"auth": {"vault_ref": {"path": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/agents/sendgrid-AbCdEf", "key": "api_key"}}}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://api.example/v1/{id}?token={token}&page=2"}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://{user}@host.example/"}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://{token}:@host.example/"}]}}`,
		`{"agent": {"tools": [{"endpoint": "https://$TOKEN:x@host.example/"}]}}`,
		`{"agent": {"instructions": "Call https://adam:@host.example/ first."}}`,
		`{"agent": {"tools": [{"endpoint": "mcp://files/read"}]}}`,
		`{"agent": {"model": {"preferred": "anthropic/claude-3-5-sonnet-20241022", "base_url": "https://llm.example/v1"}}}`,
		`{"agent": {"context": [{"value": "see https://docs.example/guide?key=intro#auth and mail a@b.example"}]}}`,
		`{"provenance": {"signature": "q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k="}}`,
	}
	for _, text := range accepted {
		if ps := scanSecrets(KindAgent, tree(t, []byte(text))); len(ps) != 0 {
			t.Errorf("%s: %v", text, ps)
		}
	}
}

// TestProseIsNoCredential holds the scan to the kinds of text that agent definitions are full of.
func TestProseIsNoCredential(t *testing.T) {
	for _, text := range []string{
		"Use the bearer authentication that the gateway requires.",
		"Bearer authentication-is-required-for-all-calls",
		"Bearer ${ACCESS_TOKEN}, Bearer <token>, Bearer {{token}}",
		"Basic knowledge of Go is assumed; basic authentication is not offered.",
		"The key is sk-learn compatible, like sk-learn-contrib-pipeline-helpers.",
		"A task-management-and-risk-assessment-framework for teams.",
		"commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
		"UUID 3c6f9f60-62b8-4c6f-8f3a-6a7a4e2f7d02 and ULID 01JD4Z3Y8Q6W5V4T3S2R1P0N9M",
		"https://github.com/aeemesh/aeemesh/blob/main/README.md?plain=1#L10-L20",
		"ssh://git@github.com/aeemesh/aeemesh and postgres://user@db/app",
		"Never print AKIA or ghp_ prefixes, xoxb- tokens or a JWT (eyJ…).",
		"SELECT * FROM tokens WHERE secret = ?",
		"password: at least eight characters",
		"-----BEGIN CERTIFICATE-----",
		"-----BEGIN PUBLIC KEY-----",
		strings.Repeat("lorem ipsum ", 1000),
	} {
		if what, found := Credential(text); found {
			t.Errorf("%.60q is taken for %s", text, what)
		}
	}
}

func TestStatesAreNotScanned(t *testing.T) {
	doc := map[string]any{"conversation": []any{map[string]any{"content": madeUp["GitHub"]}}}
	if ps := scanSecrets(KindState, doc); ps != nil {
		t.Errorf("%v", ps)
	}
	if ps := scanSecrets(KindManifest, doc); len(ps) != 1 {
		t.Errorf("a manifest is scanned: %v", ps)
	}
}

func TestMessagesNeverQuoteACredential(t *testing.T) {
	secret := madeUp["OpenAI"]
	doc := fmt.Sprintf(`{"sc_standard": %[1]q, "sc_version": %[1]q, "status": %[1]q, "agent": {"name": "A", "goal": "G", "skills": [%[1]q, %[1]q], "model": {"provider": %[1]q}, "tools": [{"name": %[1]q, "description": "d"}]}}`, secret)
	_, err := Parse([]byte(doc), Options{})
	if err == nil {
		t.Fatal("accepted")
	}
	if strings.Contains(err.Error(), secret[:12]) {
		t.Errorf("quoted: %v", err)
	}
	problems := err.(*Error).Problems
	for _, rule := range []Rule{RuleConst, RulePattern, RuleEnum, RuleUnique, RuleSecret} {
		if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Rule == rule }) {
			t.Errorf("no problem of rule %s", rule)
		}
	}
}

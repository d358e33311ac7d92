package aaif_test

import (
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

const reviewer = `
sc_standard: SC-006
status: active
agent:
  name: Code Reviewer
  goal: Every fault in a change is found before it is merged.
  instructions: |
    Read the change. Report faults, not matters of taste.
  constraints:
    - Never approve a change that you have not read.
  tools:
    - name: vet
      description: Runs go vet on a package.
      protocol: function
      parameters_schema: {type: object, required: [dir], properties: {dir: {type: string}}}
  memory:
    - {scope: session, content: what was said about earlier changes}
`

func Example() {
	doc, err := aaif.Read("reviewer.yaml", strings.NewReader(reviewer), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		log.Fatal(err)
	}
	def := doc.Definition().WithDefaults()
	entity, err := aaif.EntityName(def.Agent.Name)
	if err != nil {
		log.Fatal(err)
	}
	level, next := doc.Definition().Level()
	fmt.Println(entity, "runs", def.Agent.Runtime.Concurrency, "at a time")
	fmt.Println("level:", level, "- then", next.Level)
	for _, p := range aaif.NotHonoured(doc, aaif.WorkerSupports()) {
		fmt.Println(p)
	}
	// Output:
	// agent.code_reviewer runs 1 at a time
	// level: Portable - then Multi-agent
	// 16:3: /agent/memory: warning: memory is not honoured yet: the agent remembers nothing from one task to the next
}

// A program makes a document of its own. The rules are those of a document that is read.
func ExampleNew() {
	doc, err := aaif.New(&aaif.Definition{Standard: aaif.Standard, Agent: aaif.Agent{Name: "Greeter", Goal: "Every guest is greeted."}})
	if err != nil {
		log.Fatal(err)
	}
	text, err := doc.Encode(aaif.YAML)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(text))
	// Output:
	// sc_standard: SC-006
	// agent:
	//   name: Greeter
	//   goal: Every guest is greeted.
}

func ExampleParse() {
	const text = `{
  "sc_standard": "SC-006",
  "metadata": {"team": "platform"},
  "agent": {
    "name": "Reviewer",
    "model": {"provider": "opnai"}
  }
}`
	_, err := aaif.Parse([]byte(text), aaif.Options{Name: "reviewer.json"})
	fmt.Println(err)

	var invalid *aaif.Error
	if errors.As(err, &invalid) {
		fmt.Println(invalid.Problems[0].Rule, "at", invalid.Problems[0].Pointer)
	}
	// Output:
	// reviewer.json: 3 problems
	//   4:3: /agent: "goal" is missing
	//   6:15: /agent/model/provider: "opnai" is not one of openai, anthropic, google, vertex_ai, mistral, cohere, groq, ollama, azure_openai, bedrock, huggingface, together, fireworks, deepseek, xai, openrouter, custom (did you mean "openai"?)
	//   3:3: /metadata: unknown field "metadata" (your own fields start with "x-": "x-metadata")
	// required at /agent
}

func ExampleNegotiate() {
	have := aaif.Offer{Capabilities: aaif.SetOf(aaif.CapToolFunction, aaif.CapIOStreaming)}
	need := aaif.Need{Capabilities: []string{aaif.CapToolFunction, aaif.CapToolMCP}}
	for _, safety := range []aaif.SafetyLevel{aaif.SafetyMinimal, aaif.SafetyStandard, aaif.SafetyStrict, aaif.SafetyRegulated} {
		n := aaif.Negotiate(need, have, safety)
		fmt.Println(safety, n.Action, n.Err())
	}
	// Output:
	// minimal skip <nil>
	// standard disable <nil>
	// strict reject safety level strict: this runtime lacks capabilities tool.mcp
	// regulated reject-and-audit safety level regulated: this runtime lacks capabilities tool.mcp
}

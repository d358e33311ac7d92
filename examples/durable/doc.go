// Package durable is an agent to kill: three slow steps, one after the other,
// on the durable lane. Whenever its worker dies, another one goes on where it
// was, and each step has its effect once.
//
// In one terminal, a server with JetStream and two workers, which share their
// tasks, and their process ids:
//
//	aeemesh up &
//	worker() {
//		exec aeemesh worker examples/durable/agent.yaml --lost-call '*=repeat' \
//			--tool fetch='sh examples/durable/step.sh fetch' \
//			--tool convert='sh examples/durable/step.sh convert' \
//			--tool publish='sh examples/durable/step.sh publish'
//	}
//	worker & one=$!
//	worker & two=$!
//
// In another one, a task, and its stream:
//
//	aeemesh send agent.slow_publisher '{"text": "the report"}' --durable --stream
//
// Now end the worker that has it, in the first terminal, at any moment and as
// rudely as you like. If the stream goes on without a pause, it was the other one;
// then start a new one and end that:
//
//	kill -9 $one
//	worker & one=$!
//	kill -9 $two
//
// Within a second the other worker has the task, and does the step that was under
// way again. The stream goes on and says nothing twice. The file
// steps.log has a line for each step that was done, with its idempotency key:
// three of them, whatever happened. step.sh is safe to repeat, since it looks at
// its key, and --lost-call says so. Leave that away, and a call that was under
// way waits for a person to say what became of it:
//
//	aeemesh runs list
//	aeemesh runs settle …
package durable

import _ "embed"

//go:embed agent.yaml
var document []byte

// Document is agent.yaml.
func Document() []byte { return append([]byte(nil), document...) }

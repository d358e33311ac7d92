// Package durable is an agent for experiments with crashes: it does three slow steps, one after the
// other, on the durable lane. When its worker dies, another one continues from the last checkpoint,
// and each step has its effect once.
//
// In one terminal, start a server with JetStream and two workers, which share the tasks, and store
// their process ids:
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
// In another terminal, send a task and follow its stream:
//
//	aeemesh send agent.slow_publisher '{"text": "the report"}' --durable --stream
//
// Now kill one of the workers in the first terminal, at any moment. If the stream continues without
// a pause, the other worker has the task: start a new worker, and kill that one:
//
//	kill -9 $one
//	worker & one=$!
//	kill -9 $two
//
// Within a second the other worker has the task, and repeats the step that was running. The stream
// continues and repeats nothing. The file steps.log has one line for each completed step, with its
// idempotency key: always three lines. step.sh is safe to repeat, because it checks its key, and
// --lost-call declares this. Without --lost-call, an interrupted call waits until a person states
// its outcome:
//
//	aeemesh runs list
//	aeemesh runs settle …
package durable

import _ "embed"

//go:embed agent.yaml
var document []byte

// Document is agent.yaml.
func Document() []byte { return append([]byte(nil), document...) }

// Package builtin is the offline model. It needs no network and no key, and gives the same answer
// every time. AAIF documents select it with provider custom and provider_id builtin;
// model.preferred selects one of echo, script and filler.
//
// # echo
//
// echo answers with the content of the last user message, unchanged. It streams word by word, and
// never calls tools.
//
// # script
//
// script plays the turns in model.params.extended.script:
//
//	model:
//	  provider: custom
//	  provider_id: builtin
//	  preferred: script
//	  params:
//	    extended:
//	      script:
//	        - say: "Reading ${input.path}. "
//	          call:
//	            - name: check_format
//	              arguments: { path: "${input.path}" }
//	            - name: find_secrets
//	              arguments: { path: "${input.path}" }
//	        - json:
//	            summary: "${tools.check_format.count} files want gofmt"
//	            findings:
//	              - "${tools.check_format.findings...}"
//	              - "${tools.find_secrets.findings...}"
//
// A turn is an object with these members:
//
//	say       text. Alone it is the answer; it may accompany call.
//	call      a list of {name, arguments}: tools to call, at once.
//	json      any JSON: the answer is this value, written compactly.
//	error     {kind, message, retry_after_ms}: the turn fails. Kinds are those of
//	          model.Kinds. Beside say, the text is streamed first, and then the
//	          stream breaks.
//	delay_ms  how long to wait before the turn, at most 600000.
//	pace_ms   how long to pause between two streamed words, at most 600000.
//	usage     {input_tokens, output_tokens}: the tokens to report. Without it
//	          the model reports words.
//
// Exactly one of say, call, json or error is needed; say may also accompany
// call or error. Any other member is an error. An error in one turn makes every
// call fail, with the number of the turn, counted from 1.
//
// The number of assistant messages in the conversation selects the turn. The
// model has no state between calls, so a conversation that was stored can be
// resumed elsewhere. A request beyond the last turn is an error. Tool results
// are taken from the conversation, too. If a caller drops old messages, the
// script plays the wrong turn.
//
// # Expansion
//
// In say, in json and in call arguments, strings may refer to values:
//
//	${input}          the task's payload: the first user message, as JSON if it
//	                  is JSON, else as a string; ${input.text} is this string, too
//	${tools.NAME}     the latest result of the tool NAME, likewise; of a call that
//	                  failed it is what the model is told, a string
//	${results}        all tool results so far, a list in conversation order
//
// Paths use dots: ${input.files.0.name}; in a list, a number is an index. A
// member whose name contains a dot or a brace cannot be addressed. A path
// without a value is an error.
//
// A string that is one reference and nothing else is replaced by the JSON value
// itself. In a longer string, and in say, a reference is replaced by its text:
// the characters of a string, the compact JSON of anything else. As an element
// of a list, a string like "${tools.x.findings...}" is replaced by all elements
// of the list it names. $${ writes a plain ${. Values are inserted as they are
// and not expanded again. Member names are not expanded.
//
// # filler
//
// filler fills in a schema template (package intents/template), so that demos and tests need no
// key. It only matches patterns. In the request it finds the mapping examples of a description
// ('from Oslo' -> 'OSL'), the values that a key accepts, a value in the place of an example's
// ("from Rome"), and days: ISO dates, and in English "today", "tomorrow" and the names of weekdays.
// Of several scenarios it chooses the one whose name and description have the most words of the
// request.
//
// # Mistakes
//
// For a missing turn, or a reference without a value, the error is a model.ErrBadRequest with a
// [*ScriptError], which agents send to the task's sender. [Check] finds mistakes that are visible
// in the script alone.
//
// # Continuing
//
// Both models are a [model.Continuer]: a turn of which a part was streamed is
// continued after that part, without the delay, at the turn's pace.
//
// # Limits
//
// A script has at most 256 turns. A turn has at most 64 calls, 1024 references, 64 levels and 4 MiB
// of expanded text. Beyond these limits a call fails with model.ErrBadRequest.
//
// A Model has no state and is safe for concurrent use.
package builtin

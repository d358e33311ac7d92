// Package aimocktest tests model adapters against a third-party protocol
// double: the npm package @copilotkit/aimock, which speaks the wire of OpenAI
// and its kin, Azure, Anthropic, Gemini, Vertex AI, Bedrock, Ollama, Cohere and
// OpenRouter on one port.
//
//	func TestAgainstAimock(t *testing.T) {
//		aimocktest.Run(t, aimocktest.Start(t), aimocktest.Options{}, func(t *testing.T, s *aimocktest.Stage) model.Model {
//			return newModel(t, s.URL+"/v1")
//		})
//	}
//
// [Start] starts one process for a test, and [Server.Stage] gives each part of
// it a base URL of its own, where its turns are played and what the adapter
// sent is kept byte for byte. Under that URL the families are where aimock has
// them: /v1 is OpenAI's, / is Anthropic's, Gemini's, Vertex AI's and Bedrock's,
// /openai/deployments/NAME is Azure's, /api/v1 is OpenRouter's,
// /compatibility/v1 and any other prefix before /chat/completions is OpenAI's
// again.
//
// Node and the package are found through the environment variable
// AEEMESH_TEST_NODE, which names a folder that holds node_modules:
//
//	npm install --prefix DIR @copilotkit/aimock@1.43.0
//	AEEMESH_TEST_NODE=DIR go test ./agents/model/...
//
// Without it the tests are skipped, and say so.
//
// The double does not check keys or schemas, and reports only the tokens that a
// turn sets. An adapter's main test is the suite of modeltest, with a double
// that does.
package aimocktest

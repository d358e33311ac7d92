// Package aimocktest tests model adapters against a third-party protocol double: the npm package
// @copilotkit/aimock, which implements the APIs of OpenAI, Azure, Anthropic, Gemini, Vertex AI,
// Bedrock, Ollama, Cohere and OpenRouter on one port.
//
//	func TestAgainstAimock(t *testing.T) {
//		aimocktest.Run(t, aimocktest.Start(t), aimocktest.Options{}, func(t *testing.T, s *aimocktest.Stage) model.Model {
//			return newModel(t, s.URL+"/v1")
//		})
//	}
//
// [Start] starts one process for a test. [Server.Stage] gives each part of the test a base URL of
// its own, plays that part's turns there, and records the adapter's requests byte for byte. Below
// that URL, aimock serves OpenAI at /v1; Anthropic, Gemini, Vertex AI and Bedrock at /; Azure at
// /openai/deployments/NAME; OpenRouter at /api/v1. A request to /chat/completions with any other
// prefix, such as /compatibility/v1, is answered as OpenAI.
//
// The environment variable AEEMESH_TEST_NODE names the folder that contains node_modules with the
// package:
//
//	npm install --prefix DIR @copilotkit/aimock@1.43.0
//	AEEMESH_TEST_NODE=DIR go test ./agents/model/...
//
// Without the variable the tests are skipped with a message.
//
// aimock does not check keys or schemas, and reports only the tokens that a turn sets. So the main
// test of an adapter is the suite of modeltest, with a double that checks them.
package aimocktest

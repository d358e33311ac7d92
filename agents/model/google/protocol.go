package google

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// The members of an answer that this package uses (Gemini API reference, GenerateContentResponse).
// Each must have the right type, because a misread answer is worse than an error; the types of
// other members do not matter.
type (
	answer struct {
		Candidates     []candidate `json:"candidates"`
		PromptFeedback struct {
			BlockReason string `json:"blockReason"`
		} `json:"promptFeedback"`
		UsageMetadata *usage `json:"usageMetadata"`
		ModelVersion  string `json:"modelVersion"`
	}
	candidate struct {
		Index        number       `json:"index"`
		FinishReason finishReason `json:"finishReason"`
		Content      struct {
			Parts []part `json:"parts"`
		} `json:"content"`
	}
	part struct {
		Text             string `json:"text"`
		Thought          bool   `json:"thought"`
		ThoughtSignature []byte `json:"thoughtSignature"`
		FunctionCall     *call  `json:"functionCall"`
	}
	call struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Args object `json:"args"`
	}
	usage struct {
		Prompt     number `json:"promptTokenCount"`
		ToolPrompt number `json:"toolUsePromptTokenCount"`
		Candidates number `json:"candidatesTokenCount"`
		Thoughts   number `json:"thoughtsTokenCount"`
		Cached     number `json:"cachedContentTokenCount"`
	}
)

// finishReason says why a turn ended.
type finishReason string

const (
	finishUnspecified       finishReason = "FINISH_REASON_UNSPECIFIED"
	finishStop              finishReason = "STOP"
	finishMaxTokens         finishReason = "MAX_TOKENS"
	finishSafety            finishReason = "SAFETY"
	finishRecitation        finishReason = "RECITATION"
	finishLanguage          finishReason = "LANGUAGE"
	finishBlocklist         finishReason = "BLOCKLIST"
	finishProhibitedContent finishReason = "PROHIBITED_CONTENT"
	finishSPII              finishReason = "SPII"
	finishMalformedCall     finishReason = "MALFORMED_FUNCTION_CALL"
	finishUnexpectedCall    finishReason = "UNEXPECTED_TOOL_CALL"
	finishTooManyCalls      finishReason = "TOO_MANY_TOOL_CALLS"
	finishMalformed         finishReason = "MALFORMED_RESPONSE"
	finishNoSignature       finishReason = "MISSING_THOUGHT_SIGNATURE"
	finishImageSafety       finishReason = "IMAGE_SAFETY"
	finishImageProhibited   finishReason = "IMAGE_PROHIBITED_CONTENT"
	finishImageRecitation   finishReason = "IMAGE_RECITATION"
)

// errStrange replaces errors of encoding/json, which may quote the answer.
var errStrange = errors.New("the answer is not what the API's reference says")

func parseAnswer(doc []byte) (*answer, error) {
	var a answer
	if json.Unmarshal(doc, &a) != nil {
		return nil, errStrange
	}
	return &a, nil
}

// number is an int32 of the API, in any form of a JSON number (10, 1e1).
type number int32

// UnmarshalJSON reads a number.
func (n *number) UnmarshalJSON(raw []byte) error {
	var f float64
	if err := json.Unmarshal(raw, &f); err != nil {
		return err
	}
	if f != math.Trunc(f) || f < math.MinInt32 || f > math.MaxInt32 {
		return fmt.Errorf("%s is not an int32", raw)
	}
	*n = number(f)
	return nil
}

// object is a JSON object or null. It keeps the bytes, because a float64 would change large
// numbers.
type object json.RawMessage

// UnmarshalJSON reads an object.
func (o *object) UnmarshalJSON(raw []byte) error {
	if raw[0] != '{' && raw[0] != 'n' {
		return errors.New("it is not an object")
	}
	*o = bytes.Clone(raw)
	return nil
}

package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/aeemesh/aeemesh/agents/model"
)

const maxCalls = 256 // tool calls in one turn

// callbackError marks the error of the caller's callback on its way out.
type callbackError struct{ error }

// turn is an answer that is being put together.
type turn struct {
	text    strings.Builder
	refused bool
	calls   []*partialCall
	finish  string
	usage   model.Usage
	model   string
	keep    []string                     // members to be kept
	kept    map[string][]json.RawMessage // and their pieces
	onDelta func(model.Delta) error
}

type partialCall struct {
	index     int64
	id, name  string
	arguments strings.Builder
}

// read reads an answer: a stream of events or one JSON document, whichever the
// server chose to send.
func read(res *http.Response, stream bool, keep []string, onDelta func(model.Delta) error) (*turn, error) {
	t := &turn{onDelta: onDelta, keep: keep}
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	whole := media == "application/json" || strings.HasSuffix(media, "+json") || media == "" && !stream
	if !whole {
		return t, t.stream(ssestream.NewDecoder(res))
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if err := reported(body); err != nil {
		return nil, err
	}
	var c openai.ChatCompletion
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, errors.New("the answer is not the JSON of a chat completion")
	}
	return t, t.whole(&c)
}

func (t *turn) whole(c *openai.ChatCompletion) error {
	if len(c.Choices) == 0 {
		return errors.New("the answer has no choices")
	}
	choice := c.Choices[0]
	t.model = c.Model
	t.finish = choice.FinishReason
	t.usage = usage(&c.Usage)
	for _, name := range t.keep {
		t.keepPiece(name, json.RawMessage(choice.Message.JSON.ExtraFields[name].Raw()))
	}
	for i, call := range choice.Message.ToolCalls {
		if err := t.call(int64(i), call.ID, call.Function.Name, call.Function.Arguments); err != nil {
			return err
		}
	}
	t.refused = choice.Message.Refusal != ""
	return t.append(text(choice.Message.Content, choice.Message.JSON.Content.Raw()) + choice.Message.Refusal)
}

// stream reads events until [DONE], and accepts a stream that ends without it
// once the turn has said why it finished.
func (t *turn) stream(events ssestream.Decoder) error {
	defer events.Close()
	for events.Next() {
		data := bytes.TrimSpace(events.Event().Data)
		if bytes.Equal(data, []byte("[DONE]")) {
			return nil
		}
		if len(data) == 0 {
			continue
		}
		if err := reported(data); err != nil {
			return err
		}
		var chunk openai.ChatCompletionChunk
		if err := json.Unmarshal(data, &chunk); err != nil {
			return errors.New("the stream has an event that is not the JSON of a chunk")
		}
		if err := t.chunk(&chunk); err != nil {
			return err
		}
	}
	if t.finish != "" {
		return nil
	}
	if err := events.Err(); err != nil {
		return fmt.Errorf("the stream broke off: %w", err)
	}
	return fmt.Errorf("the stream broke off: %w", io.ErrUnexpectedEOF)
}

func (t *turn) chunk(c *openai.ChatCompletionChunk) error {
	if c.Model != "" {
		t.model = c.Model
	}
	if c.JSON.Usage.Valid() {
		t.usage = usage(&c.Usage)
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		if choice.FinishReason != "" {
			t.finish = choice.FinishReason
		}
		for _, call := range choice.Delta.ToolCalls {
			if err := t.call(call.Index, call.ID, call.Function.Name, call.Function.Arguments); err != nil {
				return err
			}
		}
		t.refused = t.refused || choice.Delta.Refusal != ""
		for _, name := range t.keep {
			t.keepPiece(name, json.RawMessage(choice.Delta.JSON.ExtraFields[name].Raw()))
		}
		if err := t.append(text(choice.Delta.Content, choice.Delta.JSON.Content.Raw()) + choice.Delta.Refusal); err != nil {
			return err
		}
	}
	return nil
}

// text is a content, which some models give as a list of parts: theirs are
// texts, and thoughts, which are not for the answer.
func text(content, raw string) string {
	if !strings.HasPrefix(raw, "[") {
		return content
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal([]byte(raw), &parts) != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type == "text" {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// usage counts as the port does. Some tell of cached tokens under a name of
// their own, and some count thoughts beside the completion instead of in it.
func usage(u *openai.CompletionUsage) model.Usage {
	out := model.Usage{
		InputTokens:       u.PromptTokens,
		OutputTokens:      u.CompletionTokens,
		CachedInputTokens: u.PromptTokensDetails.CachedTokens,
	}
	var also struct {
		Hit     int64 `json:"prompt_cache_hit_tokens"`
		Details struct {
			Write int64 `json:"cache_write_tokens"`
		} `json:"prompt_tokens_details"`
	}
	if json.Unmarshal([]byte(u.RawJSON()), &also) == nil {
		out.CacheWriteTokens = also.Details.Write
		if out.CachedInputTokens == 0 {
			out.CachedInputTokens = also.Hit
		}
	}
	if r := u.CompletionTokensDetails.ReasoningTokens; r > 0 && u.TotalTokens == u.PromptTokens+u.CompletionTokens+r {
		out.OutputTokens += r
	}
	return out
}

func (t *turn) append(text string) error {
	if text == "" {
		return nil
	}
	t.text.WriteString(text)
	if t.onDelta == nil {
		return nil
	}
	if err := t.onDelta(model.Delta{Text: text}); err != nil {
		return callbackError{err}
	}
	return nil
}

// call adds a piece of a tool call. Pieces belong together by their index;
// servers that send none are told apart by the ids of their calls.
func (t *turn) call(index int64, id, name, arguments string) error {
	var c *partialCall
	for i := len(t.calls) - 1; i >= 0 && c == nil; i-- {
		if t.calls[i].index == index {
			c = t.calls[i]
		}
	}
	if c == nil || id != "" && c.id != "" && id != c.id {
		if len(t.calls) == maxCalls {
			return fmt.Errorf("the answer has more than %d tool calls", maxCalls)
		}
		c = &partialCall{index: index}
		t.calls = append(t.calls, c)
	}
	if c.id == "" {
		c.id = id
	}
	if c.name == "" {
		c.name = name
	}
	c.arguments.WriteString(arguments)
	return nil
}

func (t *turn) response(req *model.Request) (*model.Response, error) {
	if t.finish == "error" || t.finish == "insufficient_system_resource" {
		return nil, model.Errorf(model.ErrUnavailable, "the model broke off with finish reason %s", t.finish)
	}
	res := &model.Response{
		Message: model.Assistant(t.text.String()),
		Finish:  model.FinishStop,
		Usage:   t.usage,
		Model:   t.model,
	}
	if res.Model == "" {
		res.Model = req.Model
	}
	ids := make(map[string]bool, len(t.calls))
	for i, c := range t.calls {
		if c.name == "" {
			return nil, model.Errorf(model.ErrUnavailable, "the answer has a tool call without a name")
		}
		for n := i + 1; c.id == "" || ids[c.id]; n++ {
			c.id = fmt.Sprintf("call_%d", n)
		}
		ids[c.id] = true
		res.Message.ToolCalls = append(res.Message.ToolCalls, model.ToolCall{
			ID: c.id, Name: c.name, Arguments: model.Arguments(c.arguments.String())})
	}
	switch {
	case t.finish == "length" || t.finish == "model_length":
		res.Finish = model.FinishLength
	case t.finish == "content_filter" || t.refused:
		res.Finish = model.FinishContentFilter
	case len(t.calls) > 0: // some servers say stop
		res.Finish = model.FinishToolCalls
	}
	return res, nil
}

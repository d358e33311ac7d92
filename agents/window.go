package agents

import (
	"cmp"
	"slices"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/mesh"
)

// bytesPerToken is a conservative estimate: English text has more, code and
// other languages about as many.
const bytesPerToken = 3

// estimate estimates the tokens of a message, including the overhead that a
// provider adds.
func estimate(m *model.Message) int {
	n := len(m.Content) + len(m.ToolName) + len(m.Provider)
	for _, c := range m.ToolCalls {
		n += len(c.Name) + len(c.Arguments) + 12
	}
	return n/bytesPerToken + 4
}

// overhead estimates the tokens of the window that are not available to the
// conversation: those of the tools and the answer.
func (l *loop) overhead(req *model.Request) int {
	n := len(req.Format.Schema)
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	answer := cmp.Or(req.Params.MaxTokens, 1024)
	return n/bytesPerToken + answer
}

// inputTokens estimates the tokens of a request.
func (l *loop) inputTokens(req *model.Request) int {
	n := len(req.Format.Schema)
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	return sizeOf(req.Messages) + n/bytesPerToken
}

// fit shortens a conversation to a number of tokens by leaving out its oldest
// whole turns (AAIF, Agent State Document): an assistant's message and the
// results of its tools stay together. System messages at its beginning stay,
// and so does the task after them, if taskFirst. The last turn stays, whatever
// its size, with the user message that it answers.
func fit(messages []model.Message, taskFirst bool, tokens int) []model.Message {
	size := sizeOf(messages)
	if size <= tokens {
		return messages
	}
	head := 0
	for head < len(messages) && messages[head].Role == model.RoleSystem {
		head++
	}
	if taskFirst && head < len(messages) && messages[head].Role == model.RoleUser {
		head++
	}
	cut := head
	var question []model.Message // the user message that the first kept turn answers
	for end := turnEnd(messages, cut); size > tokens && end < len(messages); end = turnEnd(messages, cut) {
		switch messages[cut].Role {
		case model.RoleUser:
			size -= sizeOf(question)
			question = messages[cut:end]
		default:
			size -= sizeOf(messages[cut:end])
		}
		if cut = end; messages[cut].Role == model.RoleUser || taskFirst {
			size -= sizeOf(question)
			question = nil
		}
	}
	return slices.Concat(messages[:head], question, messages[cut:])
}

func sizeOf(messages []model.Message) (tokens int) {
	for i := range messages {
		tokens += estimate(&messages[i])
	}
	return tokens
}

// turnEnd is the end of the turn that begins at i: after the results of its
// tools.
func turnEnd(messages []model.Message, i int) int {
	for i++; i < len(messages) && messages[i].Role == model.RoleTool; i++ {
	}
	return min(i, len(messages))
}

// window returns the part of a run's conversation that fits the model, if the
// model's window is known. The run keeps all of it.
func (l *loop) window(task *mesh.Task, r *run, req *model.Request) []model.Message {
	room := r.learned
	if l.context > 0 {
		known := max(1, l.context-l.overhead(req))
		if room == 0 || known < room {
			room = known
		}
	}
	if room == 0 {
		return r.messages
	}
	kept := fit(r.messages, r.taskFirst, room)
	if dropped := len(r.messages) - len(kept); dropped > 0 {
		e := task.Envelope
		l.log.Info("conversation truncated for the model", "id", e.ID, "corr", e.Corr, "intent", e.Intent, "messages", len(r.messages), "left_out", dropped)
	}
	return kept
}

// fitter returns a function that shortens a run's conversation for a given
// window, for a model that routes between models with different windows.
// besides are messages that are appended to the conversation.
func (l *loop) fitter(r *run, req *model.Request, besides ...model.Message) func(int) []model.Message {
	overhead := l.overhead(req) + sizeOf(besides)
	return func(window int) []model.Message {
		room := max(1, window-overhead)
		if r.learned > 0 {
			room = min(room, r.learned)
		}
		kept := fit(r.messages, r.taskFirst, room)
		if window > 1 { // a window of 1 asks for the shortest possible request
			r.sent = sizeOf(kept)
		}
		if len(besides) == 0 {
			return kept
		}
		return slices.Concat(kept, besides)
	}
}

// shorten halves what is sent to a model that refused the request as too long.
// It returns false if nothing more can be left out.
func (l *loop) shorten(task *mesh.Task, r *run, req *model.Request) bool {
	size := sizeOf(req.Messages)
	if r.sent > 0 {
		size = min(size, r.sent)
	}
	r.learned, r.sent = max(1, size/2), 0
	shorter := l.window(task, r, req)
	if len(shorter) == len(req.Messages) {
		return false
	}
	req.Messages = shorter
	return true
}

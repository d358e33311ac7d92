package agents

import (
	"slices"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/mesh"
)

// bytesPerToken is a guess on the safe side: English has more, code and other
// languages have about as many.
const bytesPerToken = 3

// estimate is about how many tokens a message is, with what a provider puts
// around it.
func estimate(m *model.Message) int {
	n := len(m.Content) + len(m.ToolName) + len(m.Provider)
	for _, c := range m.ToolCalls {
		n += len(c.Name) + len(c.Arguments) + 12
	}
	return n/bytesPerToken + 4
}

// overhead is about how many tokens of the window are not for the
// conversation: the tools, and the answer.
func (l *loop) overhead(req *model.Request) int {
	n := len(req.Format.Schema)
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	answer := req.Params.MaxTokens
	if answer == 0 {
		answer = 1024
	}
	return n/bytesPerToken + answer
}

// inputTokens is about how many tokens a request is.
func (l *loop) inputTokens(req *model.Request) int {
	n := len(req.Format.Schema)
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	return sizeOf(req.Messages) + n/bytesPerToken
}

// fit leaves out of a conversation what does not fit into a number of tokens,
// from its oldest end (AAIF, Agent State Document), in whole turns: an
// assistant's message and what its tools said stay together. What is at its head
// stays: system messages, and behind them the task, if taskFirst. So does the
// last turn, whatever its size, and the message of a user that it is about.
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
	var question []model.Message // that what is kept begins by answering
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

// turnEnd is where the turn that begins at i ends: behind what its tools said.
func turnEnd(messages []model.Message, i int) int {
	for i++; i < len(messages) && messages[i].Role == model.RoleTool; i++ {
	}
	return min(i, len(messages))
}

// window is as much of a run's conversation as fits the model, as far as its
// window is known. The run keeps all of it.
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

// fitter is how much of a run's conversation belongs into a window that a model
// which chooses among several knows. Behind it comes what is asked besides.
func (l *loop) fitter(r *run, req *model.Request, besides ...model.Message) func(int) []model.Message {
	overhead := l.overhead(req) + sizeOf(besides)
	return func(window int) []model.Message {
		room := max(1, window-overhead)
		if r.learned > 0 {
			room = min(room, r.learned)
		}
		kept := fit(r.messages, r.taskFirst, room)
		if window > 1 { // 1 asks how little can be sent
			r.sent = sizeOf(kept)
		}
		if len(besides) == 0 {
			return kept
		}
		return slices.Concat(kept, besides)
	}
}

// shorten halves what is sent to a model that says that it was too long. It
// returns false where nothing can be left out any more.
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

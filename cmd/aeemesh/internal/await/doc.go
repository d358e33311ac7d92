// Package await helps commands that wait for an agent's answer: it says why no answer arrives, and
// ends a wait for an answer that cannot arrive.
//
// For live tasks these are [Watch], during the wait, and [Unanswered], after it; [Unasked] is for
// questions to an agent about itself. [LiveTaskGone]
// looks for the worker of a live task that asked a person.
// For durable tasks, which a worker that starts later takes too, they are
// [WarnUntaken], [Untaken] and [StillUntaken]; [SubmitFailed] and [ResultFailed] describe
// how the wait ended.
package await

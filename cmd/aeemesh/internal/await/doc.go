// Package await watches over commands that wait for an agent's answer: it says
// why none comes, and ends a wait in which none can come.
//
// For live tasks these are [Watch], during the wait, and [Unanswered], after it.
// For durable tasks, which a worker that starts later takes too, they are
// [WarnUntaken], [Untaken] and [StillUntaken].
package await

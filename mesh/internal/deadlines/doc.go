// Package deadlines is the list of an agent's tasks that were accepted and are not answered.
// It calls back for tasks whose deadline passes, and for tasks that take so long that their
// sender is told which worker has them.
//
// It stands on the alarm of package sched. A task is only the item of an [Entry] here.
package deadlines

// Package dead has the commands of "aeemesh dead": they list, show, retry and drop dead
// letters, which are tasks that could not be done.
package dead

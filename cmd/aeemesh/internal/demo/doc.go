// Package demo is "aeemesh demo": it shows a mesh at work, with
// nothing installed: a server, workers with agents, tasks between them, and a
// worker that is killed and whose run another worker continues.
package demo

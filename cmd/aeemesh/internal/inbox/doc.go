// Package inbox has the commands for people whom agents ask: "aeemesh inbox" shows
// what they are asked, "aeemesh answer" answers it.
package inbox

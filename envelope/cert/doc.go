// Package cert says what is wrong with a server's certificate. It stands on nothing, so that
// every package can use it.
package cert

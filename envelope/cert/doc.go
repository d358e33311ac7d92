// Package cert explains why a server's certificate was refused. It imports no other package of this
// module, so every package can use it.
package cert

// Package topology has "aeemesh plan" and "aeemesh apply": they compare the
// streams and buckets that a mesh needs with those of the server, and make or
// change them. A tally counts the changes.
package topology

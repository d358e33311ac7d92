// Package endpoint has what tools share whose call is one HTTP request: package rest makes it
// from a template, package openapi from a description.
package endpoint

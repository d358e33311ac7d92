// Package endpoint is the common part of tools whose call is one HTTP request. Package rest makes
// the request from a template, package openapi from a description.
package endpoint

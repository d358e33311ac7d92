// Package clip shortens texts of peers before they are quoted in an error, an event or a log.
package clip

// Package clip bounds texts of others that an error, an event or a log repeats.
package clip

// Package quota holds the senders of tasks to their rates and priorities (AEE, Security
// Considerations, "Denial of Service via Priority Field Abuse").
package quota

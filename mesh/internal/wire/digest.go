package wire

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
)

// TaskDigest distinguishes a task from another one with the same id: it is the SHA-256 of the
// bytes that a signature covers, so it does not depend on encoding, priority and trace. For a hop
// (a task with reply_to) it does not depend on ts and requires either, because the next owner of
// the caller's run sends the hop again with other values. It is "" if the task has no canonical
// form.
func TaskDigest(task *envelope.Envelope) string {
	if task.ReplyTo != "" {
		hop := *task
		hop.TS, hop.Requires = "", nil
		task = &hop
	}
	buf := GetBuffer()
	defer PutBuffer(buf)
	var err error
	if *buf, err = sign.AppendSigned((*buf)[:0], task); err != nil {
		return ""
	}
	sum := sha256.Sum256(*buf)
	return hex.EncodeToString(sum[:16])
}

package mesh

import "github.com/aeemesh/aeemesh/mesh/platform"

// The options of the methods that [Node] has from package platform.
type (
	// ExportOptions configure Node.Export, which writes a run to a file for another platform.
	ExportOptions = platform.ExportOptions
	// ConfirmOptions say whose verdicts Node.Confirm accepts.
	ConfirmOptions = platform.ConfirmOptions
	// ReceiverOptions configure Node.Receiver, which accepts runs from other platforms.
	ReceiverOptions = platform.ReceiverOptions
)

// Errors of Node.Export, Node.Confirm and Node.Recall.
var (
	ErrEnded     = platform.ErrEnded
	ErrNotMoving = platform.ErrNotMoving
	ErrMoving    = platform.ErrMoving
	ErrStopping  = platform.ErrStopping
)

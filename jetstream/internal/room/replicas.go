package room

import (
	"context"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// MoreReplicas returns how many bytes the account's streams reserve for their second and further
// replicas: the server reports only the first. It returns 0 if it cannot find out.
func MoreReplicas(ctx context.Context, js natsjs.JetStream) (file, memory uint64) {
	for offset := 0; ; {
		var page struct {
			Total   int                 `json:"total"`
			Streams []natsjs.StreamInfo `json:"streams"`
		}
		if err := api.Request(ctx, js, "STREAM.LIST", map[string]int{"offset": offset}, &page); err != nil {
			return 0, 0
		}
		for _, s := range page.Streams {
			bytes := uint64(max(s.Config.MaxBytes, 0)) * uint64(max(s.Config.Replicas-1, 0))
			if s.Config.Storage == natsjs.MemoryStorage {
				memory += bytes
			} else {
				file += bytes
			}
		}
		if offset += len(page.Streams); len(page.Streams) == 0 || offset >= page.Total {
			return file, memory
		}
	}
}

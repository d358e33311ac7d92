package mesh

import "github.com/aeemesh/aeemesh/mesh/internal/wire"

// HeaderFrom names the sender of plain text on aee.ask.* (docs/nats-binding.md).
const HeaderFrom = wire.HeaderFrom

// headerSlots marks the announcement that tasks wait for slots. Its value is the instance id
// of the announcing worker. The message has no body.
const headerSlots = "Aee-Slots-Wanted"

package cel

import (
	"maps"
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// adapter converts JSON values to CEL values. The members of an object are
// visited in the order of their names: with Go's random order, a condition that
// looks at the first member would hold by chance.
type adapter struct{}

// NativeToValue implements [types.Adapter].
func (adapter) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case map[string]any:
		return ordered{types.NewStringInterfaceMap(adapter{}, v), v}
	case []any:
		return types.NewDynamicList(adapter{}, v)
	}
	return types.DefaultTypeAdapter.NativeToValue(v)
}

// ordered is a map that is visited in a fixed order.
type ordered struct {
	traits.Mapper
	members map[string]any
}

// Iterator visits the names in order.
func (o ordered) Iterator() traits.Iterator {
	names := slices.Sorted(maps.Keys(o.members))
	return types.NewStringList(adapter{}, names).Iterator()
}

// Fold visits the members in order, for the macros that take two variables.
func (o ordered) Fold(f traits.Folder) {
	for _, name := range slices.Sorted(maps.Keys(o.members)) {
		if !f.FoldEntry(name, o.members[name]) {
			return
		}
	}
}

package route

import "github.com/aeemesh/aeemesh/agents/model"

// Cost returns the cost of a turn, and whether the prices are known. Sums are
// exact to the billionth of a dollar.
func (f Facts) Cost(u model.Usage) (model.USD, bool) {
	if f.Input == nil || f.Output == nil {
		return 0, false
	}
	if l := f.Long; l != nil && u.InputTokens > l.Above {
		f.Input, f.Output, f.CachedInput, f.CacheWrite = l.Input, l.Output, l.CachedInput, l.CacheWrite
	}
	cached := min(max(0, u.CachedInputTokens), u.InputTokens)
	written := min(max(0, u.CacheWriteTokens), u.InputTokens-cached)
	price := func(p *model.USD) model.USD {
		if p == nil {
			return *f.Input
		}
		return *p
	}
	in := f.Input.For(u.InputTokens - cached - written).Add(price(f.CachedInput).For(cached)).Add(price(f.CacheWrite).For(written))
	return in.Add(f.Output.For(u.OutputTokens)), true
}

// Highest returns the highest price of a thousand tokens of an ordinary
// request, for comparison with a price ceiling.
func (f Facts) Highest() (model.USD, bool) {
	if f.Input == nil || f.Output == nil {
		return 0, false
	}
	return max(*f.Input, *f.Output), true
}

// Price returns the highest price that a call may have.
func (f Facts) Price() model.Price {
	p := model.Price{MaxOutput: int64(f.MaxOutputTokens)}
	if p.Known = f.Input != nil && f.Output != nil; p.Known {
		p.Input, p.Output = *f.Input, *f.Output
		if l := f.Long; l != nil {
			if l.Input != nil {
				p.Input = max(p.Input, *l.Input)
			}
			if l.Output != nil {
				p.Output = max(p.Output, *l.Output)
			}
			if l.CacheWrite != nil {
				p.Input = max(p.Input, *l.CacheWrite)
			}
		}
		if f.CacheWrite != nil {
			p.Input = max(p.Input, *f.CacheWrite)
		}
	}
	return p
}

// blended returns the price for comparing models: three parts input and one
// part output.
func (f Facts) blended() (float64, bool) {
	if f.Input == nil || f.Output == nil {
		return 0, false
	}
	return 3*float64(*f.Input) + float64(*f.Output), true
}

package orders

import "fmt"

// TooLarge is the error of an order that nobody can deliver.
type TooLarge struct{ Order *Order }

func (e *TooLarge) Error() string { return fmt.Sprintf("order %d is too large", e.Order.ID) }

// Check returns an error that is never nil.
func Check(o *Order) error {
	var problem *TooLarge
	if o.Amount > 1000 {
		problem = &TooLarge{o}
	}
	return problem
}

// Totals adds up the orders by item.
func Totals(orders []Order)   map[string]float64 {
	var totals map[string]float64
	for _,o := range orders {
		totals[o.Item] += o.Amount
	}
	return totals
}

// Same compares an order with itself.
func (o *Order) Same(other *Order) bool {
	other.Item = other.Item
	return o.ID == o.ID && o.Item == other.Item
}

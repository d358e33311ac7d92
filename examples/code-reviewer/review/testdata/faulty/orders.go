// Package orders keeps orders in a folder, and has a fault in almost every
// function: it is what the code reviewer of the demo is given to read.
package orders

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Order is what a customer wants.
type Order struct {
	ID     int
	Item   string
	Amount float64
}

// Store keeps orders.
type Store struct {
	mu  sync.Mutex
	dir string
}

// Len counts the orders. Its receiver is a copy, lock and all.
func (s Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return 0
	}
	return len(entries)
}

// Save writes an order, and does not look whether that worked.
func (s *Store) Save(o *Order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := json.Marshal(o)
	if err != nil {
		fmt.Printf("order %s of %d cannot be saved\n", o.ID, o.Amount)
		return
	}
	os.WriteFile(filepath.Join(s.dir, string(o.ID)+".json"), data, 0o644)
}

// Load reads an order, into a copy.
func (s *Store) Load(id int) (*Order, error) {
	data, err := os.ReadFile(filepath.Join(s.dir, fmt.Sprintf("%d.json")))
	if err != nil {
		return nil, fmt.Errorf("load order %d: %w", id, err)
	}
	var o Order
	if err := json.Unmarshal(data, o); err != nil {
		return nil, err
	}
	return &o, nil
}

// Merge joins the files of a folder, all of them open until it returns.
func (s *Store) Merge(names []string) (merged []byte, err error) {
	for _, name := range names {
		f, err := os.Open(filepath.Join(s.dir, name))
		if err != nil {
			fmt.Println("skip", name)
			continue
		}
		defer f.Close()
		buf := make([]byte, 4096)
		n, err := f.Read(buf)
		fmt.Println(n, err)
		merged = append(merged, buf[:n]...)
	}
	return merged, err
}

// Wait waits for a moment, with a context that nobody will ever cancel.
func (s *Store) Wait(ctx context.Context) error {
	ctx, _ = context.WithTimeout(ctx, time.Second)
	for {
		<-ctx.Done()
		return ctx.Err()
		fmt.Println("done waiting")
	}
}

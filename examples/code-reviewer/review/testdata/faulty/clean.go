package orders

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Remove removes a file. There is nothing wrong with it.
func Remove(name string) error {
	err := os.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove order: %w", err)
	}
	return nil
}

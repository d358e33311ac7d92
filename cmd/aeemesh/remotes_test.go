package main

import (
	"bytes"
	"os"
	"testing"
	"time"
)

// A certificate is read again when its file changes, also back to an older one.
func TestACertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	_, certA, keyA := certificates(t)
	_, certB, keyB := certificates(t)
	c := &certificate{cert: certB, key: keyB}
	newer, err := c.get(nil)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{certA: certB, keyA: keyB} {
		if err := os.Chtimes(from, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	older, err := c.get(nil)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(older.Certificate[0], newer.Certificate[0]) {
		t.Error("the certificate that was rolled back is not used")
	}
	if again, err := c.get(nil); err != nil || again != older {
		t.Errorf("an unchanged certificate was read again: %v", err)
	}
}

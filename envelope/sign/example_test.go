package sign_test

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
)

func Example() {
	signer, key, err := sign.NewKey("ada-1", sign.Ed25519, "human.ada")
	if err != nil {
		fmt.Println(err)
		return
	}
	var ring sign.Ring
	if err := ring.Put(sign.Local, key); err != nil {
		fmt.Println(err)
		return
	}
	verifier := sign.Verifier{Ring: &ring, Mode: sign.Required}

	task := envelope.New(envelope.TypeTask, "human.ada", "agent.reviewer", "code.review", nil)
	if err := signer.Sign(task); err != nil {
		fmt.Println(err)
		return
	}
	who, err := verifier.Verify(task, time.Now())
	fmt.Println(who.Signed, who.KID, err)

	task.From = "human.eve"
	_, err = verifier.Verify(task, time.Now())
	var refused *envelope.Error
	fmt.Println(errors.As(err, &refused), refused.Code)
	// Output:
	// true ada-1 <nil>
	// true E_SIG_INVALID
}

// A key directory holds the keys that sign here and those that are trusted.
func ExampleLoadDir() {
	dir, err := os.MkdirTemp("", "keys")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	signer, key, err := sign.NewKey("reviewer-1", sign.Ed25519, "agent.reviewer")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := sign.SaveKey(dir, signer, key); err != nil {
		fmt.Println(err)
		return
	}

	keys, err := sign.LoadDir(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	var ring sign.Ring
	if err := ring.Replace(sign.Local, keys.Trusted); err != nil {
		fmt.Println(err)
		return
	}
	mine, ok := keys.SignerFor("agent.reviewer", time.Now())
	fmt.Println(mine, ok)
	fmt.Println(ring.List())
	// Output:
	// reviewer-1 (ed25519) true
	// [reviewer-1 (ed25519) for agent.reviewer]
}

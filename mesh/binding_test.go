package mesh_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
)

var update = flag.Bool("update", false, "write what is generated in docs/nats-binding.md anew")

const bindingFile = "../docs/nats-binding.md"

// codeTable is the part of docs/nats-binding.md that is made of envelope.Codes.
func codeTable() string {
	var b strings.Builder
	b.WriteString("| code | when | retryable | who can correct it |\n| --- | --- | --- | --- |\n")
	for _, c := range envelope.Codes {
		retryable := "no"
		if c.Retryable {
			retryable = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Code, c.When, retryable, c.Fixer)
	}
	return b.String()
}

func TestBindingDocumentListsTheCodes(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(bindingFile)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	begin := strings.Index(text, "| code | when |")
	end := begin + strings.Index(text[begin:], "\n\n") + 1
	if begin < 0 || end <= begin {
		t.Fatal("docs/nats-binding.md has no table of codes")
	}
	if *update {
		if err := os.WriteFile(bindingFile, []byte(text[:begin]+codeTable()+text[end:]), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, want := text[begin:end], codeTable(); got != want {
		t.Errorf("docs/nats-binding.md lists other codes than envelope.Codes; go test ./mesh -run Binding -update\ngot\n%s\nwant\n%s", got, want)
	}
}

// What the document says in numbers and names is what the code does.
func TestBindingDocumentNamesWhatIsThere(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(bindingFile)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for _, want := range []string{
		"`" + mesh.HeaderFrom + "`", "`" + headers.HeaderStreamCount + "`", "queue group `" + mesh.QueueGroup + "`",
		"`" + mesh.MetaEntity + "`", "`" + mesh.MetaPrefix + "`", "`" + mesh.MetaIntents + "`", "`" + mesh.MetaAgentID + "`",
		"`bus." + mesh.BusAgent + "`", "`bus." + mesh.BusTask + "`", "`bus." + mesh.BusAlert + "`",
		fmt.Sprintf("skew bound, %d minutes by default", int(mesh.DefaultSkew.Minutes())),
		fmt.Sprintf("twice the skew bound, so %d minutes by default", int(mesh.ReplayWindow(0, 0).Minutes())),
		fmt.Sprintf("(%d minutes by default); without it\n%d minutes hold", int(mesh.DefaultMaxTimeout.Minutes()), int(mesh.DefaultTimeout.Minutes())),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("docs/nats-binding.md does not say %q", want)
		}
	}
}

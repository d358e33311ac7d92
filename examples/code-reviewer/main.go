package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// maxArguments is the size of the largest arguments of a call, in bytes.
const maxArguments = 8 << 20

// run serves the tools, or calls one of them.
func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("code-reviewer", flag.ContinueOnError)
	root := flags.String("root", ".", "`directory` that the tools may read")
	name := flags.String("tool", "", "`name` of a tool to call once, with arguments from standard input")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q: there are no arguments, only flags", flags.Arg(0))
	}
	tools := reviewTools(*root)
	if *name == "" {
		return newServer(tools).Run(ctx, &mcp.StdioTransport{})
	}
	arguments, err := io.ReadAll(io.LimitReader(in, maxArguments+1))
	if err != nil {
		return err
	}
	if len(arguments) > maxArguments {
		return fmt.Errorf("arguments: larger than %d bytes", maxArguments)
	}
	result, err := review.Call(ctx, tools, *name, arguments)
	if err != nil {
		said, _ := json.Marshal(map[string]string{"error": err.Error()}) // two texts
		fmt.Fprintf(out, "%s\n", said)
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", result)
	return err
}

// reviewTools are the tools with the checks of this program.
func reviewTools(root string) *tool.Registry {
	return review.Tools(root, review.Checks{Format: checkFormat, Code: checkCode})
}

// newServer makes an MCP server of tools. It declares each tool safe to repeat, because the tools
// only read: a worker that takes over a run repeats such calls without asking a person.
func newServer(tools *tool.Registry) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "code-reviewer", Version: "1.0.0"}, nil)
	for _, own := range tools.Tools() {
		def := own.Definition()
		t := &mcp.Tool{Name: def.Name, Description: def.Description, InputSchema: def.Parameters,
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true}}
		if def.Output != nil {
			t.OutputSchema = def.Output
		}
		s.AddTool(t, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			result, err := review.Call(ctx, tools, def.Name, req.Params.Arguments)
			if err != nil {
				return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
			}
			return &mcp.CallToolResult{StructuredContent: result, Content: []mcp.Content{}}, nil
		})
	}
	return s
}

package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/secret/command"
	"github.com/aeemesh/aeemesh/agents/secret/secrettest"
)

// The test's own binary is the program: SECRET_TEST makes it one.
func TestMain(m *testing.M) {
	if os.Getenv("SECRET_TEST") != "" {
		program()
	}
	os.Exit(m.Run())
}

func program() {
	fmt.Fprintln(os.Stderr, "a program that talks of "+secrettest.PlainValue)
	path, key, version := os.Getenv("SECRET_PATH"), os.Getenv("SECRET_KEY"), os.Getenv("SECRET_VERSION")
	if _, err := os.Stat(os.Getenv("SECRET_DOWN")); err == nil {
		os.Exit(1)
	}
	switch {
	case path == "args":
		fmt.Println(strings.Join(os.Args[1:], "|"))
	case path == "env":
		fmt.Println(strings.Join(os.Environ(), " "))
	case path == "hang":
		select {}
	case path == "large":
		fmt.Println(strings.Repeat("x", 70<<10))
	case path == "denied":
		os.Exit(command.ExitDenied)
	case path == "plain" && version == "1":
		fmt.Print(secrettest.OldValue)
	case path == "plain" && version == "":
		fmt.Println(secrettest.PlainValue)
	case path == "map" && key == secrettest.MemberKey:
		fmt.Println(secrettest.MemberValue)
	case path == "json":
		_ = json.NewEncoder(os.Stdout).Encode(map[string]string{secrettest.MemberKey: secrettest.MemberValue})
	default:
		os.Exit(command.ExitNotFound)
	}
	os.Exit(0)
}

func ref(path, key, version string) aaif.VaultRef {
	return aaif.VaultRef{Provider: aaif.VaultCustom, Path: path, Key: key, Version: version}
}

func open(t *testing.T, cfg command.Config, down string) *command.Vault {
	t.Helper()
	cfg.Command, cfg.Env = append([]string{os.Args[0]}, cfg.Command...), append(cfg.Env, "SECRET_TEST=1", "SECRET_DOWN="+down)
	v, err := command.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVaultPassesTheSuite(t *testing.T) {
	t.Parallel()
	for path, asJSON := range map[string]bool{"map": false, "json": true} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			secrettest.Run(t, func(t *testing.T) secrettest.Subject {
				down := t.TempDir() + "/down"
				return secrettest.Subject{Vault: open(t, command.Config{JSON: asJSON}, down), Plain: ref("plain", "", ""), Member: ref(path, secrettest.MemberKey, ""),
					Old: ref("plain", "", "1"), Missing: ref("none", "", ""), MissingVersion: ref("plain", "", "9"), Denied: ref("denied", "", ""),
					Break: func() { _ = os.WriteFile(down, nil, 0o600) }}
			})
		})
	}
}

func TestTheProgramIsBounded(t *testing.T) {
	t.Parallel()
	if _, err := open(t, command.Config{TimeoutSeconds: 0.2}, "").Read(t.Context(), ref("hang", "", "")); !errors.Is(err, secret.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that hangs: %v", err)
	}
	v := open(t, command.Config{}, "")
	for path, want := range map[string]secret.Kind{"large": secret.ErrInvalid, "-rf": secret.ErrInvalid, "a\x00b": secret.ErrInvalid} {
		if _, err := v.Read(t.Context(), ref(path, "", "")); !errors.Is(err, want) {
			t.Errorf("%.10q: %v, want %q", path, err, string(want))
		}
	}
	if _, err := v.Read(t.Context(), ref("plain", "--all", "")); !errors.Is(err, secret.ErrInvalid) {
		t.Errorf("a key that is an option: %v", err)
	}
}

// What a document says is one argument, whatever is in it; there is no shell.
func TestArgumentsStayApart(t *testing.T) {
	t.Parallel()
	got, err := open(t, command.Config{Command: []string{"show", "{path}/{key}", "--version={version}"}}, "").Read(t.Context(), ref("args", "a b; $(x) {path}", "7"))
	if want := "show|args/a b; $(x) {path}|--version=7"; err != nil || got.Reveal() != want {
		t.Errorf("Read = %q, %v; want %q", got.Reveal(), err, want)
	}
}

// Finding 23 of the security review: sh -c "… {path}" runs what a document writes.
func TestPlaceholdersAreNoCode(t *testing.T) {
	t.Parallel()
	for line, ok := range map[string]bool{
		"pass show {path}":                          true,
		"op read op://{path}/{key}":                 true,
		"vault kv get -field={key} secret/{path}":   true,
		"/bin/sh get.sh {path} --version={version}": true,
		"sh -c|pass show \"$1\"|sh|{path}":          true,
		"sh -c|cat \"$SECRET_PATH\"":                true,
		"python3 -u get.py {path}":                  true,
		"tool -c {path}":                            true,
		"sh -c|pass show {path}":                    false,
		"sh -c|{path}":                              false,
		"/usr/bin/env|bash|-ec|{path}":              false,
		"bash -lc|x={path};pass show $x":            false,
		"python3 -c|{path}":                         false,
		"perl -e|{key}":                             false,
		"cmd.exe /c|{path}":                         false,
		"ssh vault.internal pass show {path}":       false,
		"jq .[\"{key}\"]":                           false,
		"tool --query|select value where k='{key}'": false,
	} {
		words := strings.Fields(line)
		if strings.Contains(line, "|") {
			words = strings.FieldsFunc(strings.Replace(line, " ", "|", 1), func(r rune) bool { return r == '|' })
		}
		if _, err := command.New(command.Config{Command: words}); (err == nil) != ok {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// The program gets a short list of variables, and what the operator names.
func TestTheProgramsEnvironmentIsShort(t *testing.T) {
	t.Parallel()
	worker := map[string]string{"OPENAI_API_KEY": "sk-1", "VAULT_TOKEN": "hvs-1", "HOME": "/h"}
	lookup := func(name string) (string, bool) { v, ok := worker[name]; return v, ok }
	got, err := open(t, command.Config{Env: []string{"VAULT_TOKEN"}, Getenv: lookup}, "").Read(t.Context(), ref("env", "", ""))
	if want := "HOME=/h VAULT_TOKEN=hvs-1 SECRET_TEST=1 SECRET_DOWN= SECRET_PATH=env SECRET_KEY= SECRET_VERSION="; err != nil || got.Reveal() != want {
		t.Errorf("%s, %v, want %s", got.Reveal(), err, want)
	}
}

func TestNewRefusesAConfigThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, cfg := range []command.Config{{}, {Command: []string{""}}, {Command: []string{"{path}"}}, {Command: []string{"x"}, TimeoutSeconds: -1}, {Command: []string{"x"}, TimeoutSeconds: 1e9}, {Command: []string{"x"}, Env: []string{"=x"}}} {
		if _, err := command.New(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
	v, err := command.New(command.Config{Command: []string{"/nonexistent/program"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Read(t.Context(), ref("x", "", "")); !errors.Is(err, secret.ErrUnavailable) {
		t.Errorf("a program that is not there: %v", err)
	}
}

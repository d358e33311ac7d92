// Package command is a vault that runs a program of the operator's, which can
// be any vault's command line client.
//
//	v, err := command.New(command.Config{Command: []string{"pass", "show", "{path}"}})
//
// The program is started for each read, without a shell. {path}, {key} and
// {version} in its arguments are replaced by the parts of the document's
// reference. Its environment has the same, as SECRET_PATH, SECRET_KEY and
// SECRET_VERSION, which are empty if the reference lacks the part. A part of a
// reference that begins with a hyphen is refused, so that it cannot become an
// option. A command in which a placeholder would be read as code, such as sh -c
// "pass show {path}", is refused.
//
// The rest of its environment is [subprocess.BaseEnv] and the variables of
// Config.Env.
//
// It writes the secret to standard output, up to 64 KiB; one newline at the end
// is removed. The exit status is 0 for success, 2 if there is no such secret, 3
// if it is denied, and any other if the vault is unavailable. Standard error is
// discarded, because it may quote secrets. The program is killed after
// Config.TimeoutSeconds.
//
// A program that ignores the key may write a JSON object: with Config.JSON the
// key selects its member.
package command

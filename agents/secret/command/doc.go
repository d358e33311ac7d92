// Package command is a vault behind a program that the operator names: the way to
// any vault that has a command line.
//
//	v, err := command.New(command.Config{Command: []string{"pass", "show", "{path}"}})
//
// The program is started for each read, without a shell. {path}, {key} and
// {version} in its arguments stand for what the document asks for, and the same is
// in its environment, as SECRET_PATH, SECRET_KEY and SECRET_VERSION, which are
// empty where the document says nothing. A part of a reference that begins with a
// hyphen is refused, so that it cannot become an option. A command in which a
// placeholder would be read as code, such as sh -c "pass show {path}", is refused.
//
// The rest of its environment is short: [subprocess.BaseEnv], and what Config.Env
// lists.
//
// It writes the secret to standard output, up to 64 KiB; one line end at the end is
// no part of it. The exit status says the rest: 0 it is there, 2 there is no such
// secret, 3 it is denied, any other that it could not be asked. What it writes to
// standard error is not kept: nobody knows what it quotes. It is ended after
// Config.TimeoutSeconds.
//
// A program that does not look at the key may write a JSON object: with
// Config.JSON the key is its member.
package command

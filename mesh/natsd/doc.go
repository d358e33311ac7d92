// Package natsd embeds a nats-server. It is the only importer of
// nats-server/v2.
//
// The demo, `aeemesh up` and the tests of every package run a real server in
// their own process through it:
//
//	srv, err := natsd.New(natsd.Config{Port: natsd.RandomPort, JetStream: true, StoreDir: dir})
//	if err != nil { … } // all problems of the configuration at once; nothing was touched
//	if err := srv.Start(ctx); err != nil { … } // port in use, store locked, …
//	defer srv.Close()
//	nc, err := nats.Connect(srv.ClientURL()) // or nats.Connect("", srv.InProcess())
//
// Tests take natstest.Run, which does all of it in a line.
//
// # What an acknowledgement means
//
// JetStream acknowledges a stored message before it is on the disk: by default
// nats-server calls fsync every two minutes ([Config.SyncInterval]). An
// acknowledged message survives the death of the process, kill -9 included,
// because the operating system holds the write; it may not survive a power
// failure or a crash of the operating system. There are two classes:
//
//   - [Config.SyncAlways]: an acknowledged message is on the disk. On one small
//     machine, one replica, 1 KiB messages, each waited for, that was
//     about five times slower than the default (3,797 against 19,985 a second).
//   - otherwise: up to SyncInterval of acknowledged messages can be lost when
//     the machine goes down. With replicas on machines that do not go down
//     together, the others still hold them.
//
// A stream of one replica without SyncAlways must not be called durable
// against the loss of the machine. This package makes no clusters; give it a
// [Config.ConfigFile] for one. With several replicas and SyncAlways nats-server
// 2.15 syncs the Raft log and relaxes the stream's own store.
//
// A client cannot ask a server for its class without the system account or the
// monitoring port (/jsz). The process that runs the server asks
// [Server.SyncClass].
//
// # One server, one store
//
// nats-server itself does not notice a second server on the same store
// directory, and both would write to it. This package holds a lock on the file
// "aeemesh.lock" in the store directory for as long as the server runs, and
// refuses with [ErrStoreLocked]. The operating system lets go of the lock when
// the process dies. A nats-server of your own does not take that lock: on Linux
// Start refuses too where a process that it can see (of the same user, or any as
// root) has files of the store open for writing. A nats-server that starts later,
// or whose store is empty, is not noticed.
//
// # Concurrency and limits
//
// A Server's methods may be called at once. A Server starts once; Close may be
// called any number of times and returns when the server is down. The server
// installs no signal handlers and writes to no terminal; its words go to
// [Config.Logger].
package natsd

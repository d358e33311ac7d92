// Package sdnotify reports a service's state to the service manager
// (sd_notify(3)), by datagrams on the socket that NOTIFY_SOCKET names. Without
// that variable it does nothing, so that a service need not know how it was
// started.
package sdnotify

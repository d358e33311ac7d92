// Package sdnotify tells the service manager how a service stands (sd_notify(3)):
// datagrams on the socket that NOTIFY_SOCKET names. Where there is none it does
// nothing, so that a service need not know who started it.
package sdnotify

package api

import (
	"net"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not name.
const tcpUserTimeout = 0x12

// giveUpAfter bounds how long the far end of a connection may acknowledge nothing of what was sent, or make no room for
// it. A connection that cannot be bounded so has the system's own limit.
func giveUpAfter(c *net.TCPConn, d time.Duration) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
		})
	}
}

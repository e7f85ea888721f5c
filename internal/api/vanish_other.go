//go:build !linux

package api

import (
	"net"
	"time"
)

// giveUpAfter does nothing here: the system's own limit is all there is.
func giveUpAfter(*net.TCPConn, time.Duration) {}

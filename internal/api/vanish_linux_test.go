package api

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// pair is a connection whose far end reads nothing.
func pair(t *testing.T) (near *net.TCPConn) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	far, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return tcpOf(c)
}

// fillUp writes until neither end's buffer takes more.
func fillUp(t *testing.T, c *net.TCPConn) {
	t.Helper()
	_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for {
		if _, err := c.Write(make([]byte, pieceSize)); errors.Is(err, os.ErrDeadlineExceeded) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestGiveUpAfter_AReaderThatTakesNothingIsGone(t *testing.T) {
	t.Parallel()
	c := pair(t)
	giveUpAfter(c, time.Second)
	fillUp(t, c)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("the end of a connection whose far end takes nothing: %v", err)
	}
}

func TestSendBuffer_WithAPieceIs64KiB(t *testing.T) {
	t.Parallel()
	c := pair(t)
	if err := c.SetWriteBuffer(sendBuffer); err != nil {
		t.Fatal(err)
	}
	fillUp(t, c)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var held int32
	var failed syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&held))) //nolint:gosec // an ioctl
	})
	if err != nil || failed != 0 {
		t.Fatal(err, failed)
	}
	if most := 64<<10 - pieceSize; held == 0 || int(held) > most {
		t.Errorf("the system holds %d bytes, want at most %d", held, most)
	}
}

package api

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

func TestGiveUpAfter_AReaderThatTakesNothingIsGone(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	far, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = near.Close() }()
	giveUpAfter(tcpOf(near), time.Second)
	_ = near.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for err == nil { // until neither end's buffer takes more
		_, err = near.Write(make([]byte, 64<<10))
	}
	_ = near.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("the end of a connection whose far end takes nothing: %v", err)
	}
}

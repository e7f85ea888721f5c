//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// order is what a helper is told before it builds its walls; it comes from the server alone.
type order struct {
	Language Language
	Python   *interpreter
	Limits   Limits
	Without  []string // walls to leave out
	Weak     bool     // go on where Landlock is missing
	Libs     []string // what the program that helpers are started from is linked with
}

// readiness comes twice: once with the folder /output, as a descriptor, and once when all walls stand. It may come once only,
// with the reason why they do not.
type readiness struct {
	Off      *OffError
	Landlock int // its version
}

// job is the program; nothing of it is read before the walls stand.
type job struct {
	Code  string
	CPU   time.Duration
	Probe bool   // try the walls instead
	Path  string // a file of the server's, for the probe
}

// outcome is how the program ended.
type outcome struct {
	ExitCode int
	Signal   string // that ended it
	Fault    string // of the helper's own
	Walls    []Wall
}

// maxFrame bounds a message: code doubles at most six times when it becomes JSON.
const maxFrame = 8 << 20

// send writes one message: its length, then JSON.
func send(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	if _, err := w.Write(append(frame, body...)); err != nil {
		return fmt.Errorf("send a message: %w", err)
	}
	return nil
}

// receive reads one message.
func receive(r io.Reader, into any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("receive a message: %w", err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return fmt.Errorf("receive a message: it has %d bytes", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("receive a message: %w", err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("receive a message: %w", err)
	}
	return nil
}

// sendFile sends one byte with a descriptor.
func sendFile(conn *os.File, fd int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("send a descriptor: %w", err)
	}
	var sent error
	err = raw.Write(func(to uintptr) bool {
		sent = unix.Sendmsg(int(to), []byte{1}, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
		return !errors.Is(sent, unix.EAGAIN)
	})
	if err := errors.Join(err, sent); err != nil {
		return fmt.Errorf("send a descriptor: %w", err)
	}
	return nil
}

// receiveFile receives a descriptor sent by sendFile.
func receiveFile(conn *os.File) (*os.File, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("receive a descriptor: %w", err)
	}
	space := make([]byte, unix.CmsgSpace(4))
	var n int
	var received error
	err = raw.Read(func(from uintptr) bool {
		var b [1]byte
		_, n, _, _, received = unix.Recvmsg(int(from), b[:], space, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(received, unix.EAGAIN)
	})
	if err := errors.Join(err, received); err != nil {
		return nil, fmt.Errorf("receive a descriptor: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(space[:n])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("receive a descriptor: none came (%w)", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("receive a descriptor: none came (%w)", err)
	}
	return os.NewFile(uintptr(fds[0]), "output"), nil
}

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// wireBuffer is one connection's read buffer, in bytes.
const wireBuffer = 8 << 10

// maxHead is the longest answer head that is read, in bytes.
const maxHead = 4 << 10

// wire is one keep-alive HTTP/1.1 connection with one request at a time. It is the client of every measurement: it sends
// requests that were made before the clock started and looks at the answer's bytes once, so that its own cost is small
// and the same for the fake model and for Hob.
type wire struct {
	conn net.Conn
	buf  []byte
	have []byte // of buf: read and not used yet
	body dechunker
	line []byte // the beginning of a line whose end has not come yet
	free func() bool
}

// dialWire connects to host:port; from, where it is valid, is the address to connect from. The connection is closed when
// ctx ends.
func dialWire(ctx context.Context, addr string, from netip.Addr, buffer int) (*wire, error) {
	d := net.Dialer{}
	if from.IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
	}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	free := context.AfterFunc(ctx, func() { _ = conn.Close() }) // whoever uses it gets the error
	return &wire{conn: conn, buf: make([]byte, buffer), free: free}, nil
}

func (w *wire) close() {
	w.free()
	_ = w.conn.Close() // nothing that was written is still of use
}

// until ends every read and write after d from now.
func (w *wire) until(c clock, d time.Duration) error {
	return w.conn.SetDeadline(c.start.Add(c.now() + d))
}

// exchange sends a request and hands each line of the answer's body to each, without its line end, valid until each
// returns. It returns when the body has ended; the connection can then be used again. An answer other than 2xx is an
// error with the beginning of its body.
func (w *wire) exchange(request []byte, each func(line []byte)) error {
	if _, err := w.conn.Write(request); err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	status, err := w.head()
	if err != nil {
		return err
	}
	if status/100 == 2 {
		return w.lines(each)
	}
	var told []byte
	if err := w.lines(func(line []byte) { told = append(told, line...) }); err != nil {
		return fmt.Errorf("status %d, and then: %w", status, err)
	}
	return fmt.Errorf("status %d: %s", status, told[:min(len(told), 300)])
}

// fill reads more bytes behind those that are there.
func (w *wire) fill() error {
	if len(w.have) == 0 {
		n, err := w.conn.Read(w.buf)
		w.have = w.buf[:n]
		if n > 0 {
			return nil
		}
		return err
	}
	kept := copy(w.buf, w.have)
	if kept == len(w.buf) {
		return errors.New("a line of the answer's head does not fit into the buffer")
	}
	n, err := w.conn.Read(w.buf[kept:])
	w.have = w.buf[:kept+n]
	if n > 0 {
		return nil
	}
	return err
}

// head reads the answer's head and sets up the reading of its body.
func (w *wire) head() (status int, err error) {
	for {
		if end := bytes.Index(w.have, []byte("\r\n\r\n")); end >= 0 {
			head := string(w.have[:end])
			w.have = w.have[end+4:]
			status, w.body, err = parseHead(head)
			return status, err
		}
		if len(w.have) > maxHead {
			return 0, errors.New("the head of the answer is too long")
		}
		if err := w.fill(); err != nil {
			return 0, fmt.Errorf("read the answer's head: %w", err)
		}
	}
}

// parseHead reads the status and how the body ends.
func parseHead(head string) (int, dechunker, error) {
	first, rest, _ := strings.Cut(head, "\r\n")
	_, after, _ := strings.Cut(first, " ")
	code, _, _ := strings.Cut(after, " ")
	status, err := strconv.Atoi(code)
	if err != nil || !strings.HasPrefix(first, "HTTP/1.") {
		return 0, dechunker{}, fmt.Errorf("not an HTTP answer: %q", first[:min(len(first), 80)])
	}
	for line := range strings.SplitSeq(rest, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case strings.EqualFold(name, "Content-Length"):
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return 0, dechunker{}, fmt.Errorf("an answer with Content-Length %q", value)
			}
			return status, sized(n), nil
		case strings.EqualFold(name, "Transfer-Encoding") && strings.EqualFold(value, "chunked"):
			return status, chunked(), nil
		}
	}
	if status == 204 {
		return status, sized(0), nil
	}
	return 0, dechunker{}, errors.New("an answer whose body ends with the connection; keep-alive is needed")
}

// lines hands on the lines of the body until it has ended.
func (w *wire) lines(each func(line []byte)) error {
	w.line = w.line[:0]
	for {
		for len(w.have) > 0 && !w.body.done() {
			piece, rest, err := w.body.next(w.have)
			if err != nil {
				return err
			}
			w.have = rest
			w.split(piece, each)
		}
		if w.body.done() {
			if len(w.line) > 0 {
				each(w.line)
			}
			return nil
		}
		if err := w.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read the answer's body: %w", err)
		}
	}
}

// split cuts a piece of the body into lines; the beginning of one that goes on is kept.
func (w *wire) split(piece []byte, each func(line []byte)) {
	for len(piece) > 0 {
		end := bytes.IndexByte(piece, '\n')
		if end < 0 {
			w.line = append(w.line, piece...)
			return
		}
		line := piece[:end]
		if len(w.line) > 0 {
			line = append(w.line, line...)
			w.line = line[:0]
		}
		each(line)
		piece = piece[end+1:]
	}
}

// dechunker takes the framing off an HTTP body, piece by piece, wherever the pieces are cut.
type dechunker struct {
	state chunkState
	left  int // bytes of the chunk or of the body still to come
}

type chunkState int

const (
	chunkOver  chunkState = iota // the body has ended
	chunkPlain                   // a body of a known length
	chunkSize                    // in the digits of a chunk's size
	chunkExt                     // behind the digits, up to the line's end
	chunkData                    // in a chunk
	chunkEnd                     // in the line end behind a chunk
	chunkTail                    // at the beginning of a line behind the last chunk
	chunkSkip                    // within such a line
)

// maxChunk bounds a chunk's size, so that its digits cannot overflow.
const maxChunk = 1 << 30

func chunked() dechunker { return dechunker{state: chunkSize} }

func sized(n int) dechunker {
	if n == 0 {
		return dechunker{}
	}
	return dechunker{state: chunkPlain, left: n}
}

// done says whether the body has ended.
func (d *dechunker) done() bool { return d.state == chunkOver }

// next gives the next piece of the body in in, and what follows it. The piece may be empty.
func (d *dechunker) next(in []byte) (piece, rest []byte, err error) {
	for i := 0; i < len(in); {
		switch d.state {
		case chunkOver:
			return nil, in[i:], nil
		case chunkPlain, chunkData:
			n := min(d.left, len(in)-i)
			d.left -= n
			if d.left == 0 {
				d.state = d.after()
			}
			return in[i : i+n], in[i+n:], nil
		default:
			if err := d.frame(in[i]); err != nil {
				return nil, nil, err
			}
			i++
		}
	}
	return nil, nil, nil
}

// frame takes one byte of the framing.
func (d *dechunker) frame(b byte) error {
	switch {
	case d.state == chunkSize && hexDigit(b) >= 0:
		if d.left = d.left<<4 | hexDigit(b); d.left > maxChunk {
			return errors.New("a chunk of the answer is too long")
		}
	case d.state == chunkSize && (b == '\r' || b == ';' || b == ' '):
		d.state = chunkExt
	case d.state == chunkSize:
		return fmt.Errorf("byte %q in a chunk's size", b)
	case b != '\n':
		if d.state == chunkTail && b != '\r' {
			d.state = chunkSkip
		}
	case d.state == chunkExt && d.left > 0:
		d.state = chunkData
	case d.state == chunkExt || d.state == chunkSkip:
		d.state = chunkTail
	case d.state == chunkTail:
		d.state = chunkOver
	case d.state == chunkEnd:
		d.state = chunkSize
	}
	return nil
}

// hexDigit is the value of a hexadecimal digit, -1 of another byte.
func hexDigit(b byte) int {
	switch {
	case b >= '0' && b <= '9':
		return int(b - '0')
	case b >= 'a' && b <= 'f':
		return int(b-'a') + 10
	case b >= 'A' && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}

// after is the state behind the last byte of data.
func (d *dechunker) after() chunkState {
	if d.state == chunkPlain {
		return chunkOver
	}
	return chunkEnd
}

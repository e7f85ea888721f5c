package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// chunkRoom is the room before a piece for the length of its chunk: four digits and a line end.
	chunkRoom = 6
	lastChunk = "0\r\n\r\n"
	// lingerTime is how long a client may take to close a connection whose answer ended with it. Closing first could take
	// what was sent last away again.
	lingerTime = 500 * time.Millisecond
)

// line is a connection that was taken over from net/http under a stream. What net/http holds for an answer under way (a
// goroutine whose stack has grown with the request, buffers, the request itself) is most of what an open stream would
// need. A line has a goroutine that writes, one that notices when the client leaves, and no buffer. After a stream that
// ended whole the connection waits for the next request, with which it goes back to net/http.
type line struct {
	conn    net.Conn
	server  *http.Server
	chunked bool // else the body ends with the connection
	keep    bool // the connection may carry another request

	listening sync.WaitGroup
	ahead     []byte // what came behind the request: what net/http had read of it, or one byte; settled once nobody listens
}

// takeOver moves the stream off net/http and says whether it did; then the handler has nothing more to do. It does not
// where the stream has ended, the connection cannot be had, or a body was not read.
func (t *stream) takeOver(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	server, ok := c.Context().Value(http.ServerContextKey).(*http.Server)
	if t.over || !ok {
		return false
	}
	t.open()
	if t.rc.Flush() != nil { // what was asked is now read or given up
		return false
	}
	if n, err := c.Body.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) && !errors.Is(err, http.ErrBodyReadAfterClose) {
		return false
	}
	conn, buf, err := t.rc.Hijack()
	if err != nil {
		return false
	}
	modern := c.ProtoAtLeast(1, 1)
	l := &line{server: server, chunked: modern, keep: modern && !c.Close}
	l.ahead, _ = buf.Peek(buf.Reader.Buffered())
	l.ahead = append([]byte(nil), l.ahead...)
	if b, ok := conn.(*begun); ok && len(b.head) == 0 {
		conn = b.Conn
	}
	l.conn = conn
	t.w, t.rc, t.line = nil, nil, l
	t.s.lines.add(conn)
	if len(l.ahead) == 0 {
		lease := t.lease
		l.listening.Go(func() { l.listen(lease) })
	}
	return true
}

// listen waits for the first byte of the next request, or for the client to close its side, which ends the stream.
func (l *line) listen(of *lease) {
	var b [1]byte
	switch n, err := l.conn.Read(b[:]); {
	case n > 0:
		l.ahead = append(l.ahead, b[0])
	case err != nil:
		of.leave() // no matter where the stream has ended, and the connection has waited long enough
	}
}

// write sends a piece within a time.
func (l *line) write(p *piece, within time.Duration) error {
	if err := l.conn.SetWriteDeadline(socketTime(within)); err != nil {
		return err
	}
	b := p.b[chunkRoom:]
	if l.chunked {
		b = chunk(p)
	}
	_, err := l.conn.Write(b)
	return err
}

// chunk makes a chunk of a piece, in place.
func chunk(p *piece) []byte {
	var digits [chunkRoom]byte
	head := append(strconv.AppendInt(digits[:0], int64(len(p.b)-chunkRoom), 16), "\r\n"...)
	start := chunkRoom - len(head)
	copy(p.b[start:], head)
	p.b = append(p.b, "\r\n"...)
	return p.b[start:]
}

// end ends the body of a stream that ended whole, and cuts the connection of any other, so that the reader notices. It
// says whether the connection is still there.
func (l *line) end(t *stream, err error) bool {
	if err == nil && l.chunked {
		_ = l.conn.SetWriteDeadline(socketTime(t.s.Limits.WriteTime)) // the write tells
		if _, err = io.WriteString(l.conn, lastChunk); err != nil {
			err = t.unsent(err)
		}
	}
	if err == nil {
		return true
	}
	if !errors.Is(err, errLeft) {
		t.s.cutOff(t.record, err)
	}
	if tcp := tcpOf(l.conn); tcp != nil && errors.Is(err, errSlow) {
		_ = tcp.SetLinger(0) // the system need not keep what the reader does not take
	}
	_ = l.conn.Close()
	return false
}

// next waits for another request and goes back to net/http with it, or closes the connection.
func (l *line) next(s *server) {
	if !l.keep {
		l.linger()
		return
	}
	s.lines.rest(l.conn)
	l.listening.Wait()
	if len(l.ahead) == 0 || l.conn.SetDeadline(time.Time{}) != nil {
		_ = l.conn.Close()
		return
	}
	s.lines.remove(l.conn)
	one := &single{conn: &begun{Conn: l.conn, head: l.ahead}}
	_ = l.server.Serve(one) // returns at once: there is no second connection
	if one.conn != nil {    // the server ends
		_ = l.conn.Close()
	}
}

// linger closes a connection once the client has, or has had the time to.
func (l *line) linger() {
	if closeWrite(l.conn) == nil {
		_ = l.conn.SetReadDeadline(socketTime(lingerTime))
		l.listening.Wait()
		_, _ = io.Copy(io.Discard, io.LimitReader(l.conn, headerSize))
	}
	_ = l.conn.Close()
}

// begun is a connection of whose next request the beginning was read.
type begun struct {
	net.Conn
	head []byte
}

// Read gives the beginning first.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.head) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.head)
	b.head = b.head[n:]
	return n, nil
}

// CloseWrite ends what is sent.
func (b *begun) CloseWrite() error { return closeWrite(b.Conn) }

// single is a listener with one connection, which is there already.
type single struct{ conn net.Conn }

// Accept gives the connection, then io.EOF.
func (s *single) Accept() (net.Conn, error) {
	c := s.conn
	if s.conn = nil; c == nil {
		return nil, io.EOF
	}
	return c, nil
}

// Close leaves the connection alone.
func (*single) Close() error { return nil }

// Addr is nobody's.
func (*single) Addr() net.Addr { return nil }

// lines are the connections taken over from net/http, of which http.Server.Shutdown and Close know nothing.
type lines struct {
	group sync.WaitGroup // of all streams, taken over or not

	mu      sync.Mutex
	open    map[net.Conn]bool // whether it waits for a request
	stopped bool              // none may wait any more
}

func (s *lines) add(c net.Conn) { s.set(c, false) }

// rest lets a connection wait for its next request as long as net/http would.
func (s *lines) rest(c net.Conn) { s.set(c, true) }

func (s *lines) set(c net.Conn, rests bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[net.Conn]bool{}
	}
	s.open[c] = rests
	if rests {
		wait := idleTime
		if s.stopped {
			wait = 0
		}
		_ = c.SetReadDeadline(socketTime(wait)) // a connection that has none is broken, and the reader knows
	}
}

func (s *lines) remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// stop ends the connections that wait for a request.
func (s *lines) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for c, rests := range s.open {
		if rests {
			_ = c.SetReadDeadline(socketTime(0))
		}
	}
}

// cut closes all of them.
func (s *lines) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.Close()
	}
}

// wait returns when no stream is left, or with the context's error. No request may be taken any more.
func (s *lines) wait(ctx context.Context) error {
	none := make(chan struct{})
	go func() {
		s.group.Wait()
		close(none)
	}()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

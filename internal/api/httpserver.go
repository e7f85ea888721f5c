package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// The server's times and sizes. Bodies and answers have their own times in Limits, since streams have no end in sight.
const (
	headerTime = 10 * time.Second  // a request's head must have come within this
	idleTime   = 120 * time.Second // a connection without a request is kept so long
	headerSize = 64 << 10          // bytes of a request's head
)

// connKey is where Server leaves the connection in the request's context.
type connKey struct{}

// Server is an http.Server for the API's handler: bounded heads and idle times, no limit on how long an answer may take
// (the handler sets deadlines for each piece).
func Server(addr string, handler http.Handler) *http.Server {
	return &http.Server{
		Addr: addr, Handler: handler,
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerSize,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
}

// Shutdown is http.Server.Shutdown for a Server: it waits for the streams, too, which that does not know of. They end with
// their runs, or when the engine hands those over.
func Shutdown(ctx context.Context, s *http.Server) error {
	h, ok := s.Handler.(*server)
	if ok {
		h.lines.stop()
	}
	if err := s.Shutdown(ctx); err != nil || !ok {
		return err
	}
	return h.lines.wait(ctx)
}

// Close is http.Server.Close for a Server: it closes the connections of streams, too.
func Close(s *http.Server) error {
	err := s.Close()
	if h, ok := s.Handler.(*server); ok {
		h.lines.stop()
		h.lines.cut()
	}
	return err
}

// socketTime is a deadline for a connection, which counts by the system's clock whatever clock the rest goes by.
func socketTime(d time.Duration) time.Time { return time.Now().Add(d) } //nolint:forbidigo // see above

// isUnsupported is for writers that know no deadlines, as those of tests.
func isUnsupported(err error) bool { return errors.Is(err, http.ErrNotSupported) }

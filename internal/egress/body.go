package egress

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"
)

const (
	firstRead  = 4 << 10  // first buffer for a body of unknown length
	trustedLen = 64 << 10 // most a Content-Length is believed before bytes arrive
	wireBuffer = 4 << 10  // read-ahead of the decompressor
)

// unzipper is a reusable decompressor that counts what it receives.
type unzipper struct {
	src  io.Reader
	wire int64 // bytes received
	buf  *bufio.Reader
	gz   gzip.Reader
}

// Read counts; buf reads through it.
func (u *unzipper) Read(p []byte) (int, error) {
	n, err := u.src.Read(p)
	u.wire += int64(n)
	return n, err
}

func (g *Guard) unzipper(src io.Reader) *unzipper {
	u, ok := g.gzips.Get().(*unzipper)
	if !ok {
		u = &unzipper{}
		u.buf = bufio.NewReaderSize(nil, wireBuffer)
	}
	u.src, u.wire = src, 0
	u.buf.Reset(u)
	return u
}

func (g *Guard) putUnzipper(u *unzipper) {
	u.src = nil
	u.buf.Reset(nil)
	g.gzips.Put(u)
}

// readBody reads at most limit bytes of the body, unpacked. It takes the
// coding off the response's headers, as what it returns is plain.
func (g *Guard) readBody(res *http.Response, limit int64) (body []byte, cut bool, err error) {
	if res.Request.Method == http.MethodHead || res.StatusCode == http.StatusNoContent ||
		res.StatusCode == http.StatusNotModified || res.ContentLength == 0 {
		return nil, false, nil
	}
	coding := strings.ToLower(strings.TrimSpace(strings.Join(res.Header["Content-Encoding"], ",")))
	switch coding {
	case "", "identity":
		body, cut, err = readUpTo(res.Body, res.ContentLength, limit, nil)
	case "gzip", "x-gzip":
		u := g.unzipper(res.Body)
		defer g.putUnzipper(u)
		if err := u.gz.Reset(u.buf); err != nil {
			if errors.Is(err, io.EOF) && u.wire == 0 {
				return nil, false, nil
			}
			return nil, false, err
		}
		body, cut, err = readUpTo(&u.gz, -1, limit, u)
		res.Header.Del("Content-Encoding")
		res.Header.Del("Content-Length")
	default:
		return nil, false, fail(BadResponse, "the server used the content encoding %q, which was not asked for", clip(coding))
	}
	if cut {
		body = trimPartialRune(body)
	}
	return body, cut, err
}

// clip shortens text from the other side for a message.
func clip(s string) string {
	const most = 40
	if len(s) > most {
		return s[:most]
	}
	return s
}

// readUpTo reads until the end or one byte beyond limit. A declared length
// sizes the buffer only as far as it costs little to believe it. u is the
// decompressor that r reads from, nil for a plain body.
func readUpTo(r io.Reader, declared, limit int64, u *unzipper) ([]byte, bool, error) {
	size := int64(firstRead)
	if declared > 0 {
		size = min(declared, trustedLen) + 1 // one more finds the end without growing
	}
	buf := make([]byte, 0, min(size, limit+1))
	for {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(int64(cap(buf))*2, limit+1))
			copy(grown, buf)
			buf = grown
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if u != nil && int64(len(buf)) > ratioFreeLen && int64(len(buf)) > u.wire*maxRatio {
			return nil, false, fail(TooLarge, "the response unpacks to more than %d times its size", maxRatio)
		}
		if int64(len(buf)) > limit {
			return buf[:limit], true, nil
		}
		if errors.Is(err, io.EOF) {
			return buf, false, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
}

// trimPartialRune cuts a character off that the limit has split. Bytes that
// are no UTF-8 anyway stay.
func trimPartialRune(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		tail := b[len(b)-i:]
		if utf8.RuneStart(tail[0]) {
			if tail[0] >= utf8.RuneSelf && !utf8.FullRune(tail) {
				return b[:len(b)-i]
			}
			return b
		}
	}
	return b
}

package provider

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// Sizes of the event reader, in bytes.
const (
	readBuffer   = 4 << 10  // what a stream holds while nothing is large
	keptBuffer   = 64 << 10 // larger buffers are not kept for the next stream
	MaxFrame     = 4 << 20  // of one event; more ends the stream
	readAttempts = 100      // empty reads in a row before the source counts as broken
)

// errFrameTooLarge ends a stream whose event exceeds MaxFrame.
var errFrameTooLarge = errors.New("an event of the stream is larger than 4 MiB")

// frame is one server-sent event. Its slices are valid until the next call of next.
type frame struct {
	event []byte
	data  []byte
	// torn: the stream ended inside this event, so its data may lack an end.
	torn bool
}

// eventReader reads server-sent events as they are met in the field: LF, CRLF or CR line ends, a byte order mark, data
// over several lines, comments, fields without a blank behind the colon, no blank line at the end or between two
// complete JSON documents. It copies nothing but data that spans lines.
type eventReader struct {
	src        io.Reader
	buf        []byte
	start, end int // unread bytes are buf[start:end]
	scanned    int // offset from start: no line ends before it
	lines      int // offset from start: first byte behind the last whole line
	eof        bool
	err        error
	begun      bool   // the byte order mark was looked for
	skipLF     bool   // the last line ended in CR; a LF that follows belongs to it
	joined     []byte // data that spans several lines
}

var readers = sync.Pool{New: func() any { return &eventReader{buf: make([]byte, readBuffer)} }}

func newEventReader(src io.Reader) *eventReader {
	r, ok := readers.Get().(*eventReader)
	if !ok {
		r = &eventReader{buf: make([]byte, readBuffer)}
	}
	*r = eventReader{src: src, buf: r.buf, joined: r.joined[:0]}
	return r
}

// release gives the buffers back. The reader and every frame it gave are invalid from then on.
func (r *eventReader) release() {
	r.src, r.err = nil, nil
	if len(r.buf) > keptBuffer {
		r.buf = make([]byte, readBuffer)
	}
	if cap(r.joined) > keptBuffer {
		r.joined = nil
	}
	readers.Put(r)
}

// span is a part of the buffer, as offsets from start, so that it survives the buffer's moves.
type span struct{ from, to int }

func (r *eventReader) bytes(s span) []byte { return r.buf[r.start+s.from : r.start+s.to] }

// next returns the next event that has data. The error is io.EOF at the end of the source, or the source's own.
func (r *eventReader) next() (frame, error) {
	r.consume()
	var (
		event, data span
		state       dataState
	)
	for {
		line, whole, err := r.line()
		if err != nil {
			if state == oneLine && isDocument(r.bytes(data)) || state != noData && errors.Is(err, io.EOF) {
				return r.frame(event, data, state, true), nil
			}
			return frame{}, err
		}
		field, value := split(r.bytes(line))
		switch {
		case line.from == line.to && whole:
			if state != noData {
				return r.frame(event, data, state, false), nil
			}
			event = span{}
		case string(field) == "data":
			at := span{line.to - len(value), line.to}
			if state == oneLine && isDocument(r.bytes(data)) {
				r.lines = line.from // a new event begins here although no blank line parted them
				r.scanned = line.from
				return r.frame(event, data, state, false), nil
			}
			state = r.join(state, data, at)
			data = at
		case string(field) == "event":
			event = span{line.to - len(value), line.to}
		}
		if !whole && state != noData {
			return r.frame(event, data, state, true), nil
		}
	}
}

type dataState int

const (
	noData dataState = iota
	oneLine
	manyLines
)

func (r *eventReader) join(state dataState, old, add span) dataState {
	if state == noData {
		return oneLine
	}
	if state == oneLine {
		r.joined = append(r.joined[:0], r.bytes(old)...)
	}
	r.joined = append(r.joined, '\n')
	r.joined = append(r.joined, r.bytes(add)...)
	return manyLines
}

func (r *eventReader) frame(event, data span, state dataState, torn bool) frame {
	f := frame{event: r.bytes(event), data: r.bytes(data), torn: torn}
	if state == manyLines {
		f.data = r.joined
	}
	return f
}

// split parts a line into field name and value. Comments have an empty name.
func split(line []byte) (field, value []byte) {
	i := bytes.IndexByte(line, ':')
	if i < 0 {
		return line, line[len(line):]
	}
	value = line[i+1:]
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	return line[:i], value
}

// isDocument says whether data is complete in itself, so that a further data line cannot belong to it.
func isDocument(data []byte) bool {
	data = bytes.TrimSpace(data)
	return string(data) == doneMark || len(data) > 0 && data[0] == '{' && validJSON(data)
}

const doneMark = "[DONE]"

// consume gives up the lines that were returned.
func (r *eventReader) consume() {
	r.start += r.lines
	r.scanned -= r.lines
	r.lines = 0
	if r.scanned < 0 {
		r.scanned = 0
	}
}

// line returns the next line without its end. whole is false for a last line that the source ended in.
func (r *eventReader) line() (s span, whole bool, err error) {
	for {
		if s, ok := r.scan(); ok {
			return s, true, nil
		}
		if r.eof {
			rest := span{r.lines, r.end - r.start}
			if rest.from == rest.to {
				return span{}, false, r.err
			}
			r.lines, r.scanned = rest.to, rest.to
			if errors.Is(r.err, io.EOF) {
				return rest, false, nil
			}
			return span{}, false, r.err
		}
		r.fill()
	}
}

// scan looks for a line end in what is buffered.
func (r *eventReader) scan() (span, bool) {
	if !r.begun && !r.skipMark() {
		return span{}, false
	}
	window := r.buf[r.start+r.scanned : r.end]
	if r.skipLF && len(window) > 0 {
		r.skipLF = false
		if window[0] == '\n' {
			r.scanned++
			r.lines = r.scanned
			window = window[1:]
		}
	}
	i := bytes.IndexByte(window, '\n')
	head := window
	if i >= 0 {
		head = window[:i]
	}
	if cr := bytes.IndexByte(head, '\r'); cr >= 0 {
		i, r.skipLF = cr, true
	}
	if i < 0 {
		r.scanned = r.end - r.start
		return span{}, false
	}
	s := span{r.lines, r.scanned + i}
	r.scanned += i + 1
	r.lines = r.scanned
	if r.skipLF && r.start+r.scanned < r.end {
		r.skipLF = false
		if r.buf[r.start+r.scanned] == '\n' {
			r.scanned++
			r.lines = r.scanned
		}
	}
	return s, true
}

const byteOrderMark = "\xef\xbb\xbf"

// skipMark passes over a byte order mark. It is false as long as too little was read to tell.
func (r *eventReader) skipMark() bool {
	head := r.buf[r.start:r.end]
	if len(head) < len(byteOrderMark) && !r.eof && string(head) == byteOrderMark[:len(head)] {
		return false
	}
	r.begun = true
	if bytes.HasPrefix(head, []byte(byteOrderMark)) {
		r.scanned, r.lines = len(byteOrderMark), len(byteOrderMark)
	}
	return true
}

// fill reads more, moving and growing the buffer where it must.
func (r *eventReader) fill() {
	if r.start > 0 && (r.start == r.end || r.end == len(r.buf)) {
		copy(r.buf, r.buf[r.start:r.end])
		r.end -= r.start
		r.start = 0
	}
	if r.end == len(r.buf) {
		if len(r.buf) >= MaxFrame {
			r.eof, r.err = true, errFrameTooLarge
			return
		}
		grown := make([]byte, min(2*len(r.buf), MaxFrame))
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	for range readAttempts {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		if err != nil {
			r.eof, r.err = true, err
			return
		}
		if n > 0 {
			return
		}
	}
	r.eof, r.err = true, io.ErrNoProgress
}

// waiting says whether a whole further event is buffered, so that reading on cannot block.
func (r *eventReader) waiting() bool {
	rest := r.buf[r.start+r.lines : r.end]
	return bytes.Contains(rest, []byte("\n\n")) || bytes.Contains(rest, []byte("\r\n\r\n"))
}

// peek returns the first byte that is no white space without consuming anything, 0 where the source is empty.
func (r *eventReader) peek() byte {
	for {
		if r.begun || r.skipMark() {
			if rest := bytes.TrimLeft(r.buf[r.start+r.lines:r.end], " \t\r\n"); len(rest) > 0 {
				return rest[0]
			}
			if r.eof {
				return 0
			}
		}
		r.fill()
	}
}

// rest returns all that is left, for a body that turned out to be no event stream.
func (r *eventReader) rest() ([]byte, error) {
	for !r.eof {
		r.fill()
	}
	out := bytes.Clone(r.buf[r.start+r.lines : r.end])
	r.lines, r.scanned = r.end-r.start, r.end-r.start
	if !errors.Is(r.err, io.EOF) {
		return out, r.err
	}
	return out, nil
}

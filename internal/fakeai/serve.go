package fakeai

import (
	"bytes"
	"net/http"
	"strconv"
)

// voice is what the dialects differ in.
type voice struct {
	parse  func(http.ResponseWriter, *http.Request) (Parsed, error)
	refuse func(http.ResponseWriter, int, fault) // answers an error status
	words  func(Reply) fault                     // the error of a reply, in the vendor's words
	event  func(fault) []byte                    // an error inside a stream
	events func(Parsed, Reply) [][]byte          // of a streamed answer
	answer func(Parsed, Reply) any               // an answer that is no stream
	window func(tokens, most int) fault          // refuses a prompt that is too long
	silent bool                                  // has no Retry-After header; words tells it in the error
}

// serve answers a request in a dialect: it checks, keeps, asks for the reply and delivers it.
func (s *Server) serve(v voice) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		number := s.next()
		p, err := v.parse(w, r)
		if err == nil {
			err = s.measure(&p, v.window)
		}
		if err != nil {
			f := asFault(err)
			s.refuse(f)
			v.refuse(w, f.Status, f)
			return
		}
		p.Number = number
		s.keep(p)
		reply := s.opts.Reply(p)
		if !pause(r, reply.Wait) {
			return
		}
		for k, values := range reply.Header {
			if k = http.CanonicalHeaderKey(k); !v.silent || k != retryAfterHeader {
				w.Header()[k] = values
			}
		}
		switch f := v.words(reply); {
		case reply.Status != 0:
			v.refuse(w, reply.Status, f)
		case p.Stream:
			reply.deliver(w, r, v.stream(p, reply, f))
		case reply.CutAfter < 0:
			cut(http.NewResponseController(w))
		default:
			writeJSON(w, http.StatusOK, v.answer(p, reply))
		}
	}
}

const retryAfterHeader = "Retry-After"

// stream is what deliver writes.
type stream struct {
	events  [][]byte
	failure []byte
	more    func(n int) []byte // a further piece of text for ever, nil where the answer ends
}

// endlessMark stands for the piece of text that an endless answer repeats.
const endlessMark = "HEREITGOESON"

func (v voice) stream(p Parsed, r Reply, f fault) stream {
	s := stream{failure: v.event(f)}
	if !r.Endless {
		s.events = v.events(p, r)
		return s
	}
	r.Calls = nil
	r.Text = append(r.Text[:len(r.Text):len(r.Text)], endlessMark)
	for _, e := range v.events(p, r) {
		before, behind, ok := bytes.Cut(e, []byte(endlessMark))
		if !ok {
			s.events = append(s.events, e)
			continue
		}
		s.more = func(n int) []byte {
			return bytes.Join([][]byte{before, behind}, []byte(" tok"+strconv.Itoa(n%10)))
		}
		break
	}
	return s
}

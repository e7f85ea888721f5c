package api_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"hob"
)

// feed reads a stream as the strictest client does: it splits on blank lines, wants each frame to begin with "data: "
// and takes all the rest of it for JSON. Comments are their own frames.
type feed struct {
	t        *testing.T
	answer   *http.Response
	in       *bufio.Reader
	comments int
	ids      []string // of numbered frames
	numbered bool
}

func (w *world) stream(a ask) *feed {
	w.t.Helper()
	answer, err := w.server.Client().Do(w.request(a))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(answer.Body)
		w.t.Fatalf("status %d: %s", answer.StatusCode, body)
	}
	return &feed{t: w.t, answer: answer, in: bufio.NewReader(answer.Body), numbered: a.method == http.MethodGet}
}

// frame reads up to a blank line; io.EOF at a clean end.
func (f *feed) frame() (string, error) {
	var frame strings.Builder
	for {
		line, err := f.in.ReadString('\n')
		if err != nil {
			if line != "" || frame.Len() > 0 {
				return "", fmt.Errorf("the stream breaks off in a frame: %w", io.ErrUnexpectedEOF)
			}
			return "", err
		}
		if line == "\n" {
			return strings.TrimSuffix(frame.String(), "\n"), nil
		}
		frame.WriteString(line)
	}
}

// head is what every event has.
type head struct {
	hob.EventHead
	raw json.RawMessage
}

func (f *feed) read() (head, error) {
	for {
		frame, err := f.frame()
		if err != nil {
			return head{}, err
		}
		if strings.HasPrefix(frame, ":") {
			if frame != ": keepalive" {
				return head{}, fmt.Errorf("odd comment %q", frame)
			}
			f.comments++
			continue
		}
		if f.numbered {
			id, rest, ok := strings.Cut(frame, "\n")
			if !ok || !strings.HasPrefix(id, "id: ") {
				return head{}, fmt.Errorf("frame without id: %q", frame)
			}
			f.ids = append(f.ids, strings.TrimPrefix(id, "id: "))
			frame = rest
		}
		data, ok := strings.CutPrefix(frame, "data: ")
		if !ok || strings.ContainsAny(data, "\n\r") {
			return head{}, fmt.Errorf("frame of another form: %q", frame)
		}
		h := head{raw: json.RawMessage(data)}
		if err := json.Unmarshal(h.raw, &h.EventHead); err != nil {
			return head{}, fmt.Errorf("frame without JSON: %q", frame)
		}
		return h, nil
	}
}

func (f *feed) next() head {
	f.t.Helper()
	h, err := f.read()
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

func (f *feed) rest() []head {
	f.t.Helper()
	var all []head
	for {
		h, err := f.read()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return all
		}
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, h)
	}
}

func names(heads []head) []string {
	var list []string
	for _, h := range heads {
		if h.Event != h.Type {
			list = append(list, fmt.Sprintf("%s is not %s", h.Event, h.Type))
		}
		list = append(list, string(h.Event))
	}
	return list
}

func seqs(t *testing.T, heads []head, from int64) {
	t.Helper()
	for i, h := range heads {
		if h.Seq != from+int64(i) {
			t.Fatalf("event %d has seq %d, want %d", i, h.Seq, from+int64(i))
		}
	}
}

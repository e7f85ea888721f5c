package api

import (
	"net/http"
	"reflect"

	"hob"
)

// Route is what tests need to know of a route.
type Route struct {
	Method, Path string
	Scope        hob.Scope
	Open, Local  bool
	Status       int
	Creates      bool
}

// Routes lists the table of routes.
func Routes() []Route {
	var list []Route
	for _, r := range routes() {
		list = append(list, Route{r.method, r.path, r.scope, r.open, r.local, r.status, r.create != nil})
	}
	return list
}

// Record tells a run's story as it is answered.
func Record(d hob.RunDetail) hob.RunRecord { return asRecord(d) }

// Decode runs the decoder of bodies on a run's request.
func Decode(raw []byte) (warnings []string, err error) {
	var in runInput
	b, err := decode(raw, &in, fieldsOf(reflect.TypeFor[runInput](), nil), false)
	if err != nil {
		return nil, err
	}
	if _, err := message(in.Message); err != nil {
		return nil, err
	}
	if err := in.checkContext(false); err != nil {
		return nil, err
	}
	_, err = in.options(false)
	return b.warnings, err
}

// PanicOn makes a handler of the API that panics at one path.
func PanicOn(h http.Handler, path string) http.Handler {
	s := h.(*server) //nolint:forcetypeassert // New makes no other
	s.mux.HandleFunc("GET "+path, func(http.ResponseWriter, *http.Request) { panic("secret detail") })
	return s
}

// Sender makes a function that sends a batch of events to w, as a stream does.
func Sender(h http.Handler, w http.ResponseWriter) func(batch []hob.Event) error {
	t := &stream{w: w, rc: http.NewResponseController(w), s: h.(*server)} //nolint:forcetypeassert // New makes no other
	return t.send
}

// NewRefusals makes a line of refusals; the function waits in it.
func NewRefusals() (wait func()) { return newRefusals().wait }

package api_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Several objects are linked at once; one that is not there is told of in its place.
func TestStorage_SeveralObjectsAreSignedAtOnce(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	w.bucket(`{"id":"b"}`)
	w.upload("b/a%20b/x.txt", "one")
	w.upload("b/y.txt", "two")
	type wire struct {
		Path      string
		SignedURL *string `json:"signedURL"`
		Error     *string `json:"error"`
	}
	got := as[[]wire](t, w.storage("POST", "object/sign/b", `{"expiresIn":60,"paths":["a b/x.txt","none","../x","y.txt"]}`), 200)
	if len(got) != 4 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []string{"one", "", "", "two"} {
		if (want == "") != (got[i].SignedURL == nil) || (want == "") != (got[i].Error != nil) {
			t.Errorf("%+v, want a link: %t", got[i], want != "")
			continue
		}
		if want == "" {
			continue
		}
		if r := w.do(ask{"GET", "/storage/v1" + *got[i].SignedURL, "", "", nil}); r.status != 200 || string(r.body) != want {
			t.Errorf("%s: %d %s", *got[i].SignedURL, r.status, r.body)
		}
	}
	if *got[1].Error != "Object not found" {
		t.Errorf("%q", *got[1].Error)
	}
	as[map[string]any](t, w.storage("POST", "object/sign/b/y.txt", `{"expiresIn":60}`), 200)
	var noted []string
	for _, e := range w.audit("action=file.sign") {
		noted = append(noted, e.Object+string(e.Detail))
	}
	if want := []string{`b{"seconds":60,"names":["a b/x.txt","y.txt"]}`, `b/y.txt{"seconds":60}`}; !slices.Equal(noted, want) {
		t.Errorf("%q are noted, want %q", noted, want)
	}
	many := make([]string, 1001)
	for i := range many {
		many[i] = strconv.Quote("n" + strconv.Itoa(i))
	}
	for body, status := range map[string]int{
		`{"paths":[]}`: 400, `{}`: 400, `{"paths":["y.txt"],"expiresIn":0}`: 400, `{"paths":["y.txt"],"expiresIn":604801}`: 400,
		`{"paths":[` + strings.Join(many, ",") + `]}`: 400, `{"paths":[` + strings.Join(many[:1000], ",") + `]}`: 200,
	} {
		if r := w.storage("POST", "object/sign/b", body); r.status != status {
			t.Errorf("%.40s: %d %.200s, want %d", body, r.status, r.body, status)
		}
	}
	if r := w.storage("POST", "object/sign/nothing", `{"paths":["x"]}`); r.status != 404 {
		t.Errorf("an absent bucket: %d %s", r.status, r.body)
	}
}

// Requests with the method of another one are told which it takes.
func TestStorage_RequestsOfAnotherMethodAreTold(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	for path, want := range map[string]string{
		"list/docs": "/object/list is a request to be made with POST", "copy/x": "with POST", "move/x": "with POST",
		"upload/sign/docs/x": "signed uploads", "docs/x": "Bucket not found",
	} {
		if r := w.storage("GET", "object/"+path, ""); r.status != 404 || !strings.Contains(string(r.body), want) || !strings.Contains(string(r.body), "Bucket not found") {
			t.Errorf("%s: %d %s, want %q", path, r.status, r.body, want)
		}
	}
}

package storage

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"hob"
)

// APIPath is where the API serves object storage.
const APIPath = "/storage/v1"

// A link is the address of an object with a token: the workspace, when it ends, and a signature over these, the method
// and the object. So it opens this one object, for reading, until then, and the server keeps nothing of it.

// Sign gives the address of a signed link, relative to APIPath. d is between a second and hob.MaxLinkTime, else Invalid;
// NotFound where there is no such object.
func (f *Files) Sign(ctx context.Context, by hob.Principal, bucket, name string, d time.Duration) (string, error) {
	if d < time.Second || d > hob.MaxLinkTime {
		return "", hob.Errorf(hob.Invalid, "a link holds for 1 to %d seconds", int64(hob.MaxLinkTime/time.Second)).With("field", "expiresIn")
	}
	name, err := hob.CleanFileName(name)
	if err != nil {
		return "", err
	}
	if _, err := f.Store.File(ctx, by, bucket, name); err != nil {
		return "", err
	}
	l := link{workspace: by.Workspace, bucket: bucket, name: name, until: f.Clock().Add(d).Unix()}
	return "/object/sign/" + Path(bucket, name) + "?token=" + f.token(l), nil
}

// Link gives the whole address of a signed link.
func (f *Files) Link(ctx context.Context, by hob.Principal, bucket, name string, d time.Duration) (string, error) {
	relative, err := f.Sign(ctx, by, bucket, name, d)
	if err != nil {
		return "", err
	}
	return strings.TrimRight(f.BaseURL(), "/") + APIPath + relative, nil
}

// Path writes a bucket and an object's name as they stand in addresses.
func Path(bucket, name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return url.PathEscape(bucket) + "/" + strings.Join(parts, "/")
}

// OpenLink gives the object of a signed link to whoever has it. A token that is not good for it is Invalid.
func (f *Files) OpenLink(ctx context.Context, bucket, name, token string) (hob.File, io.ReadSeekCloser, error) {
	name, err := hob.CleanFileName(name)
	if err != nil {
		return hob.File{}, nil, err
	}
	bad := hob.Errorf(hob.Invalid, "the link is not valid for this object").WithCode("invalid_link")
	head, _, ok := strings.Cut(token, ".")
	plain, err := base64.RawURLEncoding.DecodeString(head)
	if !ok || err != nil || len(token) > maxToken {
		return hob.File{}, nil, bad
	}
	until, workspace, _ := strings.Cut(string(plain), ".")
	l := link{workspace: hob.WorkspaceID(workspace), bucket: bucket, name: name}
	if l.until, err = strconv.ParseInt(until, 10, 64); err != nil || !hmac.Equal([]byte(f.token(l)), []byte(token)) {
		return hob.File{}, nil, bad
	}
	if f.Clock().Unix() >= l.until {
		return hob.File{}, nil, hob.Errorf(hob.Invalid, "the link has expired; ask for a new one").WithCode("link_expired")
	}
	return f.Open(ctx, hob.System(l.workspace), bucket, name)
}

const maxToken = 1024 // bytes

// link is what a token is good for.
type link struct {
	workspace    hob.WorkspaceID
	bucket, name string
	until        int64 // Unix seconds
}

func (f *Files) token(l link) string {
	mac := hmac.New(sha256.New, f.Secret)
	// Lengths keep two different links from reading alike.
	fmt.Fprintf(mac, "hob link 1\n%s\n%d\n%d %s\n%d %s\n%d %s", http.MethodGet, l.until,
		len(l.workspace), l.workspace, len(l.bucket), l.bucket, len(l.name), l.name)
	head := base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(l.until, 10) + "." + string(l.workspace)))
	return head + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

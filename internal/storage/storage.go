// Package storage is the object storage of workspaces: it joins the rows of files, which the store keeps, with their
// bytes, which lie in a folder or in an S3-compatible bucket.
//
// Bytes lie in blobs. A blob has a random name, is written once and never changed; objects name it, and one that nothing
// names is deleted. So a name that a user or a model chose is never part of a path, and an upload that breaks off leaves
// nothing that anybody could read. Links that are read without a key carry a signature over all they allow.
//
// The package is not for who may do what (hob.Can decides, in the store), not for HTTP, and it keeps no state of its own
// beside the bytes.
package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"hob"
)

// Backend is where blobs lie. Its methods take names that NewBlob made, and ownerMark.
type Backend interface {
	// Put stores a blob of size bytes, -1 where that is not known. It is there whole, or not at all.
	Put(ctx context.Context, blob string, size int64, body io.Reader) error
	// Open reads a blob; the context holds until it is closed. NotFound where it is not there.
	Open(ctx context.Context, blob string) (io.ReadSeekCloser, error)
	// Delete deletes blobs; those that are not there are no error.
	Delete(ctx context.Context, blobs ...string) error
	// List calls each with every blob, also with what an interrupted Put left, in no order. An error of each ends it.
	List(ctx context.Context, each func(Entry) error) error
	// Check says whether blobs can be written and read now; for the operator.
	Check(ctx context.Context) error
}

// Entry is a blob in a list.
type Entry struct {
	Blob    string
	Size    int64
	Written time.Time
}

var blobName = regexp.MustCompile(`^[0-9a-f]{32}(\.[0-9a-f]{8}\.part)?$`)

// NewBlob gives a name that no blob has.
func NewBlob() string { return hob.RandomHex(16) }

func absentBlob() error {
	return hob.Errorf(hob.NotFound, "the bytes of this object are not there any more").WithCode("object_not_found")
}

// exactly is a body that must have size bytes. One that has fewer is an error, so that the request breaks off.
func exactly(body io.Reader, size int64) io.Reader { return &exact{body, size} }

type exact struct {
	from io.Reader
	left int64
}

// Read gives the next bytes.
func (e *exact) Read(p []byte) (int, error) {
	n, err := e.from.Read(p)
	e.left -= int64(n)
	switch {
	case e.left < 0:
		return 0, errors.New("the body has more bytes than were announced")
	case errors.Is(err, io.EOF) && e.left > 0:
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}

// Bounds of handling bytes.
const (
	// deleteTime bounds deleting what a change freed; what is left then is found by its age.
	deleteTime = 30 * time.Second
	// keepTime bounds keeping the row of a file whose bytes have come.
	keepTime = 30 * time.Second
	// sniffed is how many bytes tell a content type.
	sniffed = 512
)

// Config is what Files needs.
type Config struct {
	Store   hob.FileStore
	Backend Backend
	Secret  []byte        // signs links; at least 32 bytes
	BaseURL func() string // where the server is reached from outside, without a final slash
	MaxSize int64         // of one file; hob.MaxFileSize where 0
	Clock   hob.Clock     // hob.SystemClock where nil
	Log     *slog.Logger
}

// Files is the object storage. It is safe for concurrent use.
type Files struct {
	Config

	owning  sync.Mutex
	isOwner bool // see owned
}

var _ hob.FileService = (*Files)(nil)

// New joins a store and a place for bytes. It does no I/O.
func New(c Config) *Files {
	if c.MaxSize <= 0 {
		c.MaxSize = hob.MaxFileSize
	}
	if c.Clock == nil {
		c.Clock = hob.SystemClock
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Files{Config: c}
}

// EnsureBucket makes a private bucket where there is none of that id.
func (f *Files) EnsureBucket(ctx context.Context, by hob.Principal, id string) error {
	_, err := f.Store.Bucket(ctx, by, id)
	if hob.KindOf(err) != hob.NotFound {
		return err
	}
	_, err = f.Store.CreateBucket(ctx, by, hob.Bucket{ID: id})
	if hob.KindOf(err) == hob.Conflict { // another one was faster
		return nil
	}
	return err
}

// EnsureOwned makes an owned bucket where there is none of that id, and one of a bucket that is there: nobody can have
// made it before in order to read what is put into it.
func (f *Files) EnsureOwned(ctx context.Context, by hob.Principal, id string) error {
	b, err := f.Store.Bucket(ctx, by, id)
	if hob.KindOf(err) == hob.NotFound {
		if _, err = f.Store.CreateBucket(ctx, by, hob.Bucket{ID: id, Owned: true}); hob.KindOf(err) != hob.Conflict {
			return err
		}
		err = nil // another one was faster
	}
	if err != nil || b.Owned {
		return err
	}
	return f.Store.OwnBucket(ctx, by, id)
}

// Bucket reads one bucket.
func (f *Files) Bucket(ctx context.Context, by hob.Principal, id string) (hob.Bucket, error) {
	return f.Store.Bucket(ctx, by, id)
}

// Put stores a file. Errors: NotFound (the bucket), Forbidden, Invalid (the name, or a type the bucket does not take),
// Conflict (the name is taken), TooLarge, and what reading the body gave.
func (f *Files) Put(ctx context.Context, by hob.Principal, n hob.NewFile) (file hob.File, replayed bool, err error) {
	name, err := hob.CleanFileName(n.Name)
	if err != nil {
		return hob.File{}, false, err
	}
	bucket, err := f.admit(ctx, by, n, name)
	if err != nil {
		return hob.File{}, false, err
	}
	m := newMeter(n, bucket, f.MaxSize)
	if err := m.over(n.Size); err != nil {
		return hob.File{}, false, err
	}
	if n.Type, err = m.begin(n.Type); err != nil {
		return hob.File{}, false, err
	}
	blob := NewBlob()
	if err := f.Backend.Put(ctx, blob, m.known(n.Size), m); err != nil {
		f.drop(ctx, blob)
		if m.err != nil {
			return hob.File{}, false, m.err // the body's, not ours
		}
		return hob.File{}, false, stored(ctx, err)
	}
	// All has come, so the row is kept even if the caller leaves now.
	keep, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
	defer cancel()
	kept, err := f.Store.PutFile(keep, by, hob.FilePut{
		File: hob.File{
			Bucket: n.Bucket, Name: name, Owner: n.Owner, Blob: blob, Size: m.n, Type: n.Type, Digest: hex.EncodeToString(m.sum.Sum(nil)),
		},
		Overwrite: n.Overwrite, Key: n.Key, Run: n.Run,
	})
	if err != nil {
		if k := hob.KindOf(err); k != hob.Internal && k != hob.Unavailable {
			f.drop(ctx, blob) // it certainly was not kept
		}
		return hob.File{}, false, err
	}
	f.drop(ctx, kept.Freed...)
	return kept.File, kept.Replayed, nil
}

// admit refuses what would be refused in the end before the body is read.
func (f *Files) admit(ctx context.Context, by hob.Principal, n hob.NewFile, name string) (hob.Bucket, error) {
	b, err := f.Store.Bucket(ctx, by, n.Bucket)
	if err != nil {
		return hob.Bucket{}, err
	}
	if err := hob.Can(by, hob.ScopeConfigure, hob.Object{Kind: hob.BucketObject, Workspace: b.Workspace, Owner: b.Owner}); err != nil {
		return hob.Bucket{}, err
	}
	if n.Overwrite || n.Key != "" {
		return b, nil
	}
	switch _, err := f.Store.File(ctx, by, n.Bucket, name); {
	case err == nil:
		return hob.Bucket{}, hob.Errorf(hob.Conflict, "The resource already exists: %s/%s; to replace it send x-upsert: true", n.Bucket, name).
			WithCode("object_exists")
	case hob.KindOf(err) != hob.NotFound:
		return hob.Bucket{}, err
	}
	return b, nil
}

// stored is the error for a blob that could not be written.
func stored(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &hob.Error{
			Kind: hob.Unavailable, Code: "storage_full", Message: "there is no room left where files are stored",
			RetryAfter: time.Minute, Err: err,
		}
	}
	return &hob.Error{
		Kind: hob.Unavailable, Code: "storage_unavailable", Message: "the place where files are stored does not answer; try again later",
		RetryAfter: 5 * time.Second, Err: err,
	}
}

// meter is a body on its way: counted, hashed and bounded.
type meter struct {
	from   io.Reader
	sum    hash.Hash
	bucket hob.Bucket
	most   int64
	head   []byte // read, and not yet given
	ended  bool   // head is all there is
	n      int64
	err    error // of the body; the backend would bury it
}

func newMeter(n hob.NewFile, b hob.Bucket, most int64) *meter {
	m := &meter{from: n.Body, sum: sha256.New(), bucket: b, most: most}
	if n.MaxSize > 0 {
		m.most = min(m.most, n.MaxSize)
	}
	return m
}

// over says whether so many bytes are too many.
func (m *meter) over(n int64) error {
	if m.bucket.MaxSize != nil && n > *m.bucket.MaxSize {
		return m.bucket.Check(n, "")
	}
	if n > m.most {
		return hob.Errorf(hob.TooLarge, "The object exceeded the maximum allowed size: a file has at most %d bytes", m.most).With("limit", m.most)
	}
	return nil
}

// begin reads the beginning, finds the content type where none is given, and asks whether the bucket takes it.
func (m *meter) begin(contentType string) (string, error) {
	m.head = make([]byte, 0, sniffed)
	for len(m.head) < sniffed && !m.ended {
		n, err := m.from.Read(m.head[len(m.head):sniffed])
		m.head = m.head[:len(m.head)+n]
		if m.ended = errors.Is(err, io.EOF); err != nil && !m.ended {
			return "", err
		}
	}
	if strings.TrimSpace(contentType) == "" {
		contentType = http.DetectContentType(m.head)
	}
	return contentType, m.bucket.Check(0, contentType)
}

// known is the size where it is known beforehand, else -1.
func (m *meter) known(size int64) int64 {
	if m.ended {
		return int64(len(m.head))
	}
	if size > 0 {
		return size
	}
	return -1
}

// Read gives the next bytes.
func (m *meter) Read(p []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	var n int
	var err error
	if len(m.head) > 0 {
		n = copy(p, m.head)
		m.head = m.head[n:]
	} else if m.ended {
		err = io.EOF
	} else {
		n, err = m.from.Read(p)
	}
	m.n += int64(n)
	_, _ = m.sum.Write(p[:n]) // a hash takes all
	if m.err = m.over(m.n); m.err == nil && err != nil && !errors.Is(err, io.EOF) {
		m.err = err
	}
	if m.err != nil {
		return 0, m.err
	}
	return n, err
}

// drop deletes blobs at once. What fails is tried again by the janitor, when it is old enough.
func (f *Files) drop(ctx context.Context, blobs ...string) {
	if len(blobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTime)
	defer cancel()
	err := f.owned(ctx)
	if err == nil {
		err = f.Backend.Delete(ctx, blobs...)
	}
	if err != nil {
		f.Log.Warn("deleting the bytes of files", slog.Int("blobs", len(blobs)), slog.String("error", err.Error()))
	}
}

// Open gives an object's bytes, which the caller closes.
func (f *Files) Open(ctx context.Context, by hob.Principal, bucket, name string) (hob.File, io.ReadSeekCloser, error) {
	name, err := hob.CleanFileName(name)
	if err != nil {
		return hob.File{}, nil, err
	}
	file, err := f.Store.File(ctx, by, bucket, name)
	for err == nil {
		body, gone := f.Backend.Open(ctx, file.Blob)
		if gone == nil {
			return file, body, nil
		}
		if hob.KindOf(gone) != hob.NotFound {
			return hob.File{}, nil, stored(ctx, gone)
		}
		was := file.Blob // it may have been replaced just now
		if file, err = f.Store.File(ctx, by, bucket, name); err == nil && file.Blob == was {
			f.Log.Error("the bytes of an object are missing", slog.String("bucket", bucket), slog.String("object", file.ID), slog.String("blob", was))
			return hob.File{}, nil, gone
		}
	}
	return hob.File{}, nil, err
}

// OpenPublic gives an object of a public bucket of the default workspace to anybody. All else is NotFound.
func (f *Files) OpenPublic(ctx context.Context, bucket, name string) (hob.File, io.ReadSeekCloser, error) {
	by := hob.System(hob.DefaultWorkspace)
	b, err := f.Store.Bucket(ctx, by, bucket)
	if err != nil {
		return hob.File{}, nil, err
	}
	if !b.Public {
		return hob.File{}, nil, hob.Absent(hob.BucketObject)
	}
	return f.Open(ctx, by, bucket, name)
}

// List lists objects by the beginning of their names.
func (f *Files) List(ctx context.Context, by hob.Principal, q hob.FileQuery) (hob.Page[hob.File], error) {
	return f.Store.Files(ctx, by, q)
}

// Copy makes a second object of the same bytes, which must be there: on a server that does not see where another one puts
// them they are not.
func (f *Files) Copy(ctx context.Context, by hob.Principal, m hob.FileMove) (hob.File, error) {
	_, body, err := f.Open(ctx, by, m.Bucket, m.Name)
	if err != nil {
		return hob.File{}, err
	}
	_ = body.Close() // it was only looked for
	kept, err := f.Store.CopyFile(ctx, by, m)
	if err != nil {
		return hob.File{}, err
	}
	f.drop(ctx, kept.Freed...)
	return kept.File, nil
}

// Remove deletes the objects of these names that are there, and gives them.
func (f *Files) Remove(ctx context.Context, by hob.Principal, bucket string, names ...string) ([]hob.File, error) {
	deleted, freed, err := f.Store.DeleteFiles(ctx, by, bucket, names...)
	if err != nil {
		return nil, err
	}
	f.drop(ctx, freed...)
	return deleted, nil
}

// Empty deletes all objects of a bucket.
func (f *Files) Empty(ctx context.Context, by hob.Principal, bucket string) error {
	freed, err := f.Store.EmptyBucket(ctx, by, bucket)
	f.drop(ctx, freed...) // also of a part of it
	return err
}

package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"hob"
	"hob/internal/egress"
)

// Bounds of exchanges with an S3-compatible service.
const (
	s3Tries   = 3                // of a request that may be sent again
	s3Short   = 30 * time.Second // of one that carries no bytes
	s3Long    = 15 * time.Minute // of one that stores bytes
	s3Region  = "us-east-1"      // where the address names none
	s3Service = "https://s3.amazonaws.com"
)

// S3Config is an S3-compatible bucket.
type S3Config struct {
	// Address is s3://bucket/prefix?endpoint=…&region=…&path_style=…. The endpoint is Amazon's where left out; the bucket's
	// name stands in the path, and not in the host, unless path_style=false or the endpoint is Amazon's.
	Address              string
	AccessKey, SecretKey hob.Secret
	Egress               *egress.Guard
	TempDir              string // for bodies whose size is not known beforehand; the system's where ""
}

// S3 keeps blobs in an S3-compatible bucket, below a prefix. A blob is stored in one request, which the service carries out
// wholly or not at all.
type S3 struct {
	client         *minio.Client
	bucket, prefix string
	temp           string
}

var _ Backend = (*S3)(nil)

// OpenS3 reads the address. It does no I/O; Check tells whether the bucket answers.
func OpenS3(c S3Config) (*S3, error) {
	u, err := url.Parse(c.Address)
	if err != nil || u.Scheme != "s3" || u.Host == "" {
		return nil, hob.Errorf(hob.Invalid, "the storage address must read s3://bucket/prefix?endpoint=…&region=…")
	}
	endpoint, region, style := u.Query().Get("endpoint"), u.Query().Get("region"), u.Query().Get("path_style")
	lookup := minio.BucketLookupPath
	if endpoint == "" {
		endpoint, lookup = s3Service, minio.BucketLookupDNS
		if region != "" {
			endpoint = "https://s3." + region + ".amazonaws.com"
		}
	}
	switch style {
	case "false":
		lookup = minio.BucketLookupDNS
	case "true":
		lookup = minio.BucketLookupPath
	}
	if region == "" {
		region = s3Region
	}
	at, err := url.Parse(endpoint)
	if err != nil || at.Host == "" || strings.Trim(at.Path, "/") != "" {
		return nil, hob.Errorf(hob.Invalid, "the endpoint of the storage address must be a URL without a path")
	}
	s := &S3{bucket: u.Host, prefix: strings.Trim(u.Path, "/"), temp: c.TempDir}
	door := &door{guard: c.Egress}
	s.client, err = minio.New(at.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(string(c.AccessKey), string(c.SecretKey), ""),
		Secure: at.Scheme == "https", Region: region, BucketLookup: lookup, Transport: door, MaxRetries: s3Tries,
	})
	if err != nil {
		return nil, hob.Errorf(hob.Invalid, "the storage address: %s", err.Error())
	}
	s.client.SetS3EnableDualstack(false)
	return s, door.open(s)
}

// door is the one origin that the client reaches, through the egress guard.
type door struct {
	guard *egress.Guard
	to    http.RoundTripper
}

// open finds the origin: signing an address, which asks nobody, gives it as the client will write it.
func (d *door) open(s *S3) error {
	u, err := s.client.PresignedGetObject(context.Background(), s.bucket, s.key(ownerMark), time.Minute, nil)
	if err != nil {
		return hob.Errorf(hob.Invalid, "the storage address: %s", err.Error())
	}
	client, err := d.guard.OperatorClient(u.Scheme + "://" + u.Host)
	if err != nil {
		return fmt.Errorf("the storage address: %w", err)
	}
	d.to = client.Transport
	return nil
}

// RoundTrip implements http.RoundTripper.
func (d *door) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.to == nil {
		return nil, errors.New("the storage is not open yet")
	}
	return d.to.RoundTrip(r)
}

func (s *S3) key(blob string) string { return path.Join(s.prefix, blob) }

// Put stores a blob. A body of unknown size is kept in a file that has no name until it is known.
func (s *S3) Put(ctx context.Context, blob string, size int64, body io.Reader) error {
	if _, _, err := place(blob); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s3Long)
	defer cancel()
	if size < 0 {
		f, err := spool(ctx, s.temp, body)
		if err != nil {
			return err
		}
		defer f.Close()
		if size, err = f.Seek(0, io.SeekEnd); err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil {
			return fmt.Errorf("read a spooled file: %w", err)
		}
		body = f
	}
	body = exactly(body, size)
	if size == 0 {
		body = http.NoBody // another one would be sent as of unknown size
	}
	_, err := s.client.PutObject(ctx, s.bucket, s.key(blob), body, size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", DisableMultipart: true, DisableContentSha256: size == 0,
	})
	return hob.Wrap("store an object in S3", err)
}

// spool writes a body into a file without a name, which is gone when it is closed.
func spool(ctx context.Context, dir string, body io.Reader) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".hob-upload-*") // made with mode 0600
	if err != nil {
		return nil, fmt.Errorf("spool a file: %w", err)
	}
	if err = os.Remove(f.Name()); err == nil {
		_, err = io.Copy(f, reading{ctx, body})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("spool a file: %w", err), f.Close())
	}
	return f, nil
}

// absent says whether the service answered that there is no such object.
func absent(err error) bool {
	code := minio.ToErrorResponse(err).Code
	return code == minio.NoSuchKey || code == "NotFound"
}

// Open looks whether the blob is there; its bytes are asked for when they are read.
func (s *S3) Open(ctx context.Context, blob string) (io.ReadSeekCloser, error) {
	if _, _, err := place(blob); err != nil {
		return nil, err
	}
	short, cancel := context.WithTimeout(ctx, s3Short)
	defer cancel()
	info, err := s.client.StatObject(short, s.bucket, s.key(blob), minio.StatObjectOptions{})
	if absent(err) {
		return nil, absentBlob()
	}
	if err != nil {
		return nil, fmt.Errorf("look at an object in S3: %w", err)
	}
	return &s3Reader{s: s, ctx: ctx, key: s.key(blob), size: info.Size}, nil
}

// s3Reader reads an object from where it was last sought.
type s3Reader struct {
	s    *S3
	ctx  context.Context //nolint:containedctx // of the request that opened it, as Backend says
	key  string
	size int64
	at   int64
	body io.ReadCloser // nil: asked for with the next Read
}

// Read gives the next bytes.
func (r *s3Reader) Read(p []byte) (int, error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	if r.body == nil {
		var o minio.GetObjectOptions
		if r.at > 0 {
			if err := o.SetRange(r.at, 0); err != nil {
				return 0, fmt.Errorf("read an object in S3: %w", err)
			}
		}
		body, _, _, err := minio.Core{Client: r.s.client}.GetObject(r.ctx, r.s.bucket, r.key, o)
		if err != nil {
			return 0, fmt.Errorf("read an object in S3: %w", err)
		}
		r.body = body
	}
	n, err := r.body.Read(p)
	r.at += int64(n)
	if errors.Is(err, io.EOF) && r.at < r.size {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Seek says where the next Read begins.
func (r *s3Reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, errors.New("read an object in S3: a place before its beginning")
	}
	if offset != r.at {
		_ = r.Close()
		r.at = offset
	}
	return offset, nil
}

// Close ends the transfer.
func (r *s3Reader) Close() error {
	if r.body == nil {
		return nil
	}
	err := r.body.Close()
	r.body = nil
	return err
}

// Delete deletes blobs, one after the other: not every service knows the request for many.
func (s *S3) Delete(ctx context.Context, blobs ...string) error {
	var errs []error
	for _, b := range blobs {
		_, _, err := place(b)
		if err == nil {
			err = s.client.RemoveObject(ctx, s.bucket, s.key(b), minio.RemoveObjectOptions{})
		}
		if err != nil && !absent(err) {
			errs = append(errs, fmt.Errorf("delete an object in S3: %w", err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// List lists what lies below the prefix; what is no blob is passed over.
func (s *S3) List(ctx context.Context, each func(Entry) error) error {
	prefix := s.prefix
	if prefix != "" {
		prefix += "/"
	}
	for o := range s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return fmt.Errorf("list the objects in S3: %w", o.Err)
		}
		blob := strings.TrimPrefix(o.Key, prefix)
		if !blobName.MatchString(blob) {
			continue
		}
		if err := each(Entry{Blob: blob, Size: o.Size, Written: o.LastModified}); err != nil {
			return err
		}
	}
	return nil
}

// Check says whether the bucket is there and can be written and read.
func (s *S3) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s3Short)
	defer cancel()
	there, err := s.client.BucketExists(ctx, s.bucket)
	if err != nil {
		return fmt.Errorf("reach the bucket %s: %w", s.bucket, err)
	}
	if !there {
		return fmt.Errorf("there is no bucket %s; Hob makes none", s.bucket)
	}
	return probe(ctx, s)
}

package hob

import (
	"context"
	"io"
	"time"
)

// Bucket is a named set of objects with what may be put into it.
type Bucket struct {
	ID        string      `json:"id"` // unique per workspace
	Workspace WorkspaceID `json:"-"`
	Name      string      `json:"name"`
	Owner     string      `json:"owner"`
	Public    bool        `json:"public"` // its objects can be read without a key
	MaxSize   *int64      `json:"file_size_limit"`
	Types     []string    `json:"allowed_mime_types"` // type/subtype or type/*; nil = any
	CreatedAt Time        `json:"created_at"`
	UpdatedAt Time        `json:"updated_at"`
}

// BucketPatch changes what is not nil.
type BucketPatch struct {
	Public  *bool
	MaxSize **int64
	Types   *[]string
}

// File is a stored object. Its bytes lie in the place that Blob names.
type File struct {
	ID         string      `json:"id"`
	Workspace  WorkspaceID `json:"-"`
	Bucket     string      `json:"bucket_id"`
	Name       string      `json:"name"` // its path in the bucket, normalised
	Owner      string      `json:"owner"`
	Blob       string      `json:"-"` // opaque, and never made of input
	Size       int64       `json:"-"`
	Type       string      `json:"-"` // content type
	Digest     string      `json:"-"` // SHA-256 of the bytes, in hex
	CreatedAt  Time        `json:"created_at"`
	UpdatedAt  Time        `json:"updated_at"`
	AccessedAt Time        `json:"last_accessed_at"`
}

// FileQuery picks objects of a bucket.
type FileQuery struct {
	Bucket, Prefix string
	Search         string // a part of the name; "" = any
	SortBy         string // name, created_at, updated_at or last_accessed_at; name where ""
	Descending     bool
	Limit, Offset  int
}

// NewFile is a file to be stored.
type NewFile struct {
	Bucket, Name string
	Owner        string // as Principal.Owner
	Type         string // content type; found by the bytes where ""
	Overwrite    bool   // false: Conflict where the name is taken
	Body         io.Reader
	MaxSize      int64 // bytes; the bucket's and the server's bounds hold beside it, 0 = they alone
	// Key makes the write happen once: where it was written under this key before, nothing is and the object as it was then
	// is given.
	Key string
}

// FileStore keeps buckets and what lies in them; the bytes are elsewhere. Changes give the blobs that nothing
// names any more, for their deletion.
type FileStore interface {
	CreateBucket(ctx context.Context, by Principal, b Bucket) (Bucket, error) // Conflict where the id is taken
	Bucket(ctx context.Context, by Principal, id string) (Bucket, error)
	Buckets(ctx context.Context, by Principal) ([]Bucket, error) // by id
	UpdateBucket(ctx context.Context, by Principal, id string, p BucketPatch) (Bucket, error)
	DeleteBucket(ctx context.Context, by Principal, id string) error // Conflict where it is not empty

	// PutFile keeps a file whose bytes are stored already. replayed: it was written under this key before.
	PutFile(ctx context.Context, by Principal, f File, overwrite bool, key string) (kept File, replayed bool, freed []string, err error)
	File(ctx context.Context, by Principal, bucket, name string) (File, error)
	Files(ctx context.Context, by Principal, q FileQuery) (Page[File], error)
	// MoveFile renames an object, also into another bucket. Conflict where the name is taken.
	MoveFile(ctx context.Context, by Principal, bucket, name, toBucket, toName string) (File, error)
	// DeleteFiles deletes those that are there, and gives them.
	DeleteFiles(ctx context.Context, by Principal, bucket string, names ...string) (deleted []File, freed []string, err error)
	// EmptyBucket deletes all objects of a bucket.
	EmptyBucket(ctx context.Context, by Principal, bucket string) (freed []string, err error)
	// Blobs says which of the given blobs an object names.
	Blobs(ctx context.Context, blobs []string) (map[string]bool, error)
}

// FileService is the object storage of workspaces: rows and bytes together.
type FileService interface {
	// EnsureBucket makes a private bucket where there is none of that id.
	EnsureBucket(ctx context.Context, by Principal, id string) error
	Put(ctx context.Context, by Principal, f NewFile) (file File, replayed bool, err error)
	// Open gives an object's bytes, which the caller closes.
	Open(ctx context.Context, by Principal, bucket, name string) (File, io.ReadSeekCloser, error)
	List(ctx context.Context, by Principal, q FileQuery) (Page[File], error)
	// Link is an address under which anybody can read the object for a while, from outside too.
	Link(ctx context.Context, by Principal, bucket, name string, d time.Duration) (string, error)
}

package hob

import (
	"context"
	"io"
	"mime"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of what storage takes.
const (
	MaxFileSize     = 50 << 20           // bytes of one object
	MaxFileName     = 1024               // bytes of an object's name
	MaxBucketID     = 100                // characters of a bucket's id
	MaxBucketTypes  = 100                // content types that a bucket lists
	MaxContentType  = 255                // bytes of a content type
	MaxFilesDeleted = 1000               // objects that one request names
	MaxLinkTime     = 7 * 24 * time.Hour // how long a signed link holds at most; at least a second
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
	// Owned: each of its objects is its owner's alone. Who does not see the sessions of everybody sees the others' neither
	// by reading nor in lists, and the bucket is never public.
	Owned     bool `json:"-"`
	CreatedAt Time `json:"created_at"`
	UpdatedAt Time `json:"updated_at"`
}

// OutputBucket is the owned bucket of what runs leave: their objects are named by OutputName and go with the session.
const OutputBucket = "code-output"

// OutputPrefix is what the names of a run's objects in OutputBucket begin with.
func OutputPrefix(r RunID) string { return string(r) + "/" }

// OutputName is the name of what a call of a run left in OutputBucket.
func OutputName(c Call, name string) string { return OutputPrefix(c.Run) + string(c.ID) + "/" + name }

var bucketID = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// CheckBucketID says what is wrong with the id of a bucket to be made. The words that stand in its place in addresses
// are taken.
func CheckBucketID(id string) error {
	taken := []string{"authenticated", "copy", "info", "list", "move", "public", "sign", "upload"}
	switch {
	case len(id) > MaxBucketID || !bucketID.MatchString(id):
		return Errorf(Invalid, "a bucket's id has 1 to %d letters, digits, dots, hyphens and underscores and does not begin with a dot or hyphen",
			MaxBucketID).With("field", "id")
	case slices.Contains(taken, id):
		return Errorf(Invalid, "no bucket can be called %q: it is a word of the addresses; choose another id", id).With("field", "id")
	}
	return nil
}

// Check says whether the bucket takes a file of this size and content type: TooLarge or Invalid where it does not.
func (b Bucket) Check(size int64, contentType string) error {
	if b.MaxSize != nil && size > *b.MaxSize {
		return Errorf(TooLarge, "the file has more than the %d bytes that the bucket %s takes", *b.MaxSize, b.ID)
	}
	if b.Types == nil {
		return nil
	}
	kind, _, _ := mime.ParseMediaType(contentType)
	for _, t := range b.Types {
		family, any := strings.CutSuffix(t, "/*")
		if t == kind || any && (family == "*" || strings.HasPrefix(kind, family+"/")) {
			return nil
		}
	}
	return Errorf(Invalid, "mime type %s is not supported: the bucket %s takes %s", contentType, b.ID, strings.Join(b.Types, ", ")).
		WithCode("invalid_mime_type")
}

// CleanFileName gives the name of an object as it is kept: without leading slashes. Names that could mean another place
// than they say are Invalid.
func CleanFileName(name string) (string, error) {
	clean := strings.TrimLeft(name, "/")
	why := ""
	switch {
	case clean == "":
		why = "it is empty"
	case len(clean) > MaxFileName:
		why = "it has more than 1024 bytes"
	case !utf8.ValidString(clean):
		why = "it is not UTF-8"
	case strings.ContainsFunc(clean, unicode.IsControl):
		why = "it has a control character"
	case strings.Contains(clean, `\`):
		why = `it has a backslash; folders are told apart by /`
	}
	for part := range strings.SplitSeq(clean, "/") {
		if why == "" && (part == "" || part == "." || part == "..") {
			why = `it has an empty part, "." or ".."`
		}
	}
	if why != "" {
		return "", Errorf(Invalid, "the object's name cannot be used: %s", why).With("field", "path").WithCode("invalid_key")
	}
	return clean, nil
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

// FileMove is what of one object is to become another.
type FileMove struct {
	Bucket, Name     string
	ToBucket, ToName string
	Owner            string // of a copy, as Principal.Owner
	Overwrite        bool   // a copy may take the place of an object; a move never does
}

// NewFile is a file to be stored.
type NewFile struct {
	Bucket, Name string
	Owner        string // as Principal.Owner
	Type         string // content type; found by the bytes where ""
	Overwrite    bool   // false: Conflict where the name is taken
	Body         io.Reader
	Size         int64 // of Body, where it is known; else 0. It is no bound
	MaxSize      int64 // bytes; the bucket's and the server's bounds hold beside it, 0 = they alone
	// Run is the run that leaves the file, whose row must be there still: NotFound where its session was deleted meanwhile.
	// "" = none.
	Run RunID
	// Key makes the write happen once: where it was written under this key before, nothing is and the object as it was then
	// is given.
	Key string
}

// FileStore keeps buckets and what lies in them; the bytes are elsewhere. Changes give the blobs that nothing names any
// more, for their deletion. Reading needs the right to see the bucket, all else ScopeConfigure; in an owned bucket, who does
// not see all sees and changes its own objects only.
type FileStore interface {
	CreateBucket(ctx context.Context, by Principal, b Bucket) (Bucket, error) // Conflict where the id is taken
	Bucket(ctx context.Context, by Principal, id string) (Bucket, error)
	Buckets(ctx context.Context, by Principal) ([]Bucket, error) // by id
	UpdateBucket(ctx context.Context, by Principal, id string, p BucketPatch) (Bucket, error)
	DeleteBucket(ctx context.Context, by Principal, id string) error // Conflict where it is not empty
	// OwnBucket makes a bucket an owned one that is not public, whoever made it. It needs SeesAll.
	OwnBucket(ctx context.Context, by Principal, id string) error

	// PutFile keeps a file whose bytes are stored already.
	PutFile(ctx context.Context, by Principal, p FilePut) (KeptFile, error)
	File(ctx context.Context, by Principal, bucket, name string) (File, error)
	// Files lists objects whose names begin with the prefix, those of folders below it included.
	Files(ctx context.Context, by Principal, q FileQuery) (Page[File], error)
	// MoveFile renames an object, also into another bucket. Conflict where the name is taken.
	MoveFile(ctx context.Context, by Principal, m FileMove) (File, error)
	// CopyFile makes a second object that names the same blob.
	CopyFile(ctx context.Context, by Principal, m FileMove) (KeptFile, error)
	// DeleteFiles deletes those that are there, and gives them.
	DeleteFiles(ctx context.Context, by Principal, bucket string, names ...string) (deleted []File, freed []string, err error)
	// EmptyBucket deletes all objects of a bucket.
	EmptyBucket(ctx context.Context, by Principal, bucket string) (freed []string, err error)
	// Blobs says which of the given blobs an object names.
	Blobs(ctx context.Context, blobs []string) (map[string]bool, error)
	// StorageID names this store to the place where the bytes lie. A copy of the store has another one.
	StorageID(ctx context.Context) (string, error)
	// SweepWrites forgets the keys of writes that are past their time, and says how many there were.
	SweepWrites(ctx context.Context) (int64, error)
}

// FilePut is a file whose bytes lie in its blob.
type FilePut struct {
	File      File
	Overwrite bool   // false: Conflict where the name is taken
	Key       string // as NewFile.Key
	Run       RunID  // as NewFile.Run
}

// KeptFile is what became of a FilePut.
type KeptFile struct {
	File     File
	Replayed bool     // it was written under this key before, and now nothing was
	Freed    []string // blobs that nothing names any more
}

// FileService is the object storage of workspaces: rows and bytes together.
type FileService interface {
	// EnsureBucket makes a private bucket where there is none of that id.
	EnsureBucket(ctx context.Context, by Principal, id string) error
	// EnsureOwned makes an owned bucket where there is none of that id, and one of a bucket that is there.
	EnsureOwned(ctx context.Context, by Principal, id string) error
	Bucket(ctx context.Context, by Principal, id string) (Bucket, error)
	Put(ctx context.Context, by Principal, f NewFile) (file File, replayed bool, err error)
	// Open gives an object's bytes, which the caller closes.
	Open(ctx context.Context, by Principal, bucket, name string) (File, io.ReadSeekCloser, error)
	List(ctx context.Context, by Principal, q FileQuery) (Page[File], error)
	// Link is an address under which anybody can read the object for a while, from outside too.
	Link(ctx context.Context, by Principal, bucket, name string, d time.Duration) (string, error)
}

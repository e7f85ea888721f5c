// Package backup writes an installation into one file and reads it back: a tar.gz of the agents' SQLite file, the bytes of
// files where they lie in a folder, the store's rows, a table after the other, and a manifest with counts and digests.
//
// It holds no key and no configuration: who has both the archive and the seal key has every secret in it, so they are kept
// apart. The digests find damage, not forgery. The package is not for choosing folders or talking to people, which the
// commands do, nor for what the rows mean, which the store knows.
package backup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"os"
	"time"

	"hob"
	"hob/internal/store"
)

// Format is the version of the archive's layout. 1 had no files.
const Format = 2

// The names in an archive, in their order: the agents' file, the bytes of files by the names of their blobs, the rows in
// parts of few megabytes, the manifest.
const (
	projectName  = "project.db"
	filesPrefix  = "files/"
	partName     = "tables/%s/%06d.jsonl"
	manifestName = "manifest.json"
)

// Manifest says what an archive holds.
type Manifest struct {
	Format    int         `json:"format"`
	Hob       string      `json:"hob"` // the version of the program that wrote it
	CreatedAt hob.Time    `json:"created_at"`
	Store     store.Shape `json:"store"`
	Project   *File       `json:"project"` // the agents' SQLite file; null where there is none
	Files     *Files      `json:"files,omitempty"`
}

// Files are the bytes of files.
type Files struct {
	// Elsewhere is the S3-compatible place where they lie, "" where they are in the archive.
	Elsewhere string `json:"elsewhere,omitempty"`
	Count     int64  `json:"count"`
	Size      int64  `json:"size"`
	SHA256    string `json:"sha256"` // over the name, size and bytes of each, in the archive's order
}

// Blob is the bytes of a file under their opaque name.
type Blob struct {
	Name string
	Size int64
	Body io.Reader
}

// File is a file in an archive.
type File struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Rows is the number of all rows.
func (m Manifest) Rows() int64 {
	var n int64
	for _, t := range m.Store.Tables {
		n += t.Rows
	}
	return n
}

// Source is what is backed up.
type Source struct {
	Dump    *store.Dump
	Project string // a copy of the agents' SQLite file that nobody writes to; "" where there is none
	// Files gives the bytes of files, each to be read before the next; nil where they lie in the place called Elsewhere.
	Files     iter.Seq2[Blob, error]
	Elsewhere string
	Version   string // of this program
	Now       time.Time
}

// Write writes an archive. It holds no more than a part of a table in memory.
func Write(ctx context.Context, w io.Writer, s Source) (Manifest, error) {
	m := Manifest{Format: Format, Hob: s.Version, CreatedAt: hob.FromMicros(s.Now.UnixMicro()), Store: s.Dump.Shape()}
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return m, fmt.Errorf("write the archive: %w", err)
	}
	a := &writer{tar: tar.NewWriter(zip), at: s.Now}
	if s.Project != "" {
		if m.Project, err = a.project(s.Project); err != nil {
			return m, err
		}
	}
	if m.Files, err = a.files(s); err != nil {
		return m, err
	}
	if err := a.parts(s.Dump.Chunks(ctx)); err != nil {
		return m, err
	}
	m.Store.Tables = s.Dump.Tables()
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, fmt.Errorf("write the manifest: %w", err)
	}
	if err := a.entry(manifestName, append(text, '\n')); err != nil {
		return m, err
	}
	if err := errors.Join(a.tar.Close(), zip.Close()); err != nil {
		return m, fmt.Errorf("write the archive: %w", err)
	}
	return m, nil
}

type writer struct {
	tar *tar.Writer
	at  time.Time
}

func (a *writer) head(name string, size int64) error {
	err := a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: a.at, Format: tar.FormatPAX})
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (a *writer) entry(name string, content []byte) error {
	if err := a.head(name, int64(len(content))); err != nil {
		return err
	}
	if _, err := a.tar.Write(content); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// parts writes the rows, each part whole lines of one table.
func (a *writer) parts(chunks iter.Seq2[store.Chunk, error]) error {
	table, n := "", 0
	for c, err := range chunks {
		if err != nil {
			return err
		}
		if c.Table != table {
			table, n = c.Table, 0
		}
		n++
		if err := a.entry(fmt.Sprintf(partName, table, n), c.Lines); err != nil {
			return err
		}
	}
	return nil
}

func (a *writer) project(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the project database: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the project database: %w", err)
	}
	if err := a.head(projectName, info.Size()); err != nil {
		return nil, err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(a.tar, sum), f); err != nil {
		return nil, fmt.Errorf("write %s: %w", projectName, err)
	}
	return &File{info.Size(), hex.EncodeToString(sum.Sum(nil))}, nil
}

// files writes the bytes of files, where they are to be in the archive.
func (a *writer) files(s Source) (*Files, error) {
	sum := newFilesSum()
	if s.Files == nil {
		f := sum.files()
		f.Elsewhere = s.Elsewhere
		return f, nil
	}
	for b, err := range s.Files {
		if err != nil {
			return nil, err
		}
		if err := a.head(filesPrefix+b.Name, b.Size); err != nil {
			return nil, err
		}
		if n, err := sum.add(a.tar, b); err != nil {
			return nil, fmt.Errorf("write a file: %w", err)
		} else if n != b.Size {
			return nil, fmt.Errorf("write a file: %s has %d bytes and not %d", b.Name, n, b.Size)
		}
	}
	return sum.files(), nil
}

// filesSum counts and digests the bytes of files.
type filesSum struct {
	count, size int64
	sum         hash.Hash
}

func newFilesSum() *filesSum { return &filesSum{sum: sha256.New()} }

// add reads one and writes it to w.
func (f *filesSum) add(w io.Writer, b Blob) (int64, error) {
	fmt.Fprintf(f.sum, "%s %d\n", b.Name, b.Size)
	n, err := io.Copy(io.MultiWriter(w, f.sum), b.Body)
	f.count++
	f.size += n
	return n, err
}

func (f *filesSum) files() *Files {
	return &Files{Count: f.count, Size: f.size, SHA256: hex.EncodeToString(f.sum.Sum(nil))}
}

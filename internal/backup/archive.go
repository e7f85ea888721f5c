package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"hob"
	"hob/internal/store"
)

// Bounds of an archive that is read.
const (
	// DefaultMaxSize is how large an archive may be unpacked, in bytes, where the caller names no other bound.
	DefaultMaxSize = 64 << 30
	maxManifest    = 1 << 20
	// maxPart holds a part of usual rows and then one of the greatest.
	maxPart = store.MaxDumpRow + 2<<20
)

// Archive is an archive that was read to its end and found to be whole.
type Archive struct {
	Manifest Manifest
	Size     int64 // unpacked, in bytes

	file io.ReadSeeker
	max  int64
}

// errTooLarge says that an archive unpacks to more than it may.
func errTooLarge(max int64) error {
	return hob.Errorf(hob.Invalid, "the archive unpacks to more than %d MiB; if it is yours, allow it more", max>>20)
}

// damaged is the error of an archive that is not what Write writes.
func damaged(format string, args ...any) error {
	return hob.Errorf(hob.Invalid, "the archive is damaged or none of Hob's: "+format, args...)
}

// Verify reads an archive to its end: its layout, the digest of every table and file, that nothing else is in it. Nothing
// is written. max bounds its size unpacked; 0 is DefaultMaxSize. Errors are Invalid.
func Verify(file io.ReadSeeker, max int64) (*Archive, error) {
	if max <= 0 {
		max = DefaultMaxSize
	}
	a := &Archive{file: file, max: max}
	v := verifier{sums: map[string]*store.Sum{}, files: newFilesSum()}
	r, err := a.open()
	if err != nil {
		return nil, err
	}
	for {
		name, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := v.take(name, r); err != nil {
			return nil, err
		}
	}
	a.Size = a.max - r.left.N
	if v.manifest == nil {
		return nil, damaged("it has no manifest, so it was cut off")
	}
	a.Manifest = *v.manifest
	return a, v.compare()
}

// reader goes through the entries of an archive.
type reader struct {
	tar   *tar.Reader
	left  *io.LimitedReader
	max   int64
	table string // of the last part
	part  int
	last  bool // the manifest was read
	began bool
	size  int64 // of the entry
}

func (a *Archive) open() (*reader, error) {
	if _, err := a.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	zip, err := gzip.NewReader(a.file)
	if err != nil {
		return nil, damaged("it is no gzip file (%v)", err)
	}
	left := &io.LimitedReader{R: zip, N: a.max}
	return &reader{tar: tar.NewReader(left), left: left, max: a.max}, nil
}

// fault is the error for what reading met.
func (r *reader) fault(err error) error {
	if r.left.N <= 0 {
		return errTooLarge(r.max)
	}
	return damaged("%v", err)
}

// next gives the name of the next entry, which is one that may stand there; io.EOF behind the last.
func (r *reader) next() (string, error) {
	h, err := r.tar.Next()
	if errors.Is(err, io.EOF) {
		return "", r.end()
	}
	if err != nil {
		return "", r.fault(err)
	}
	r.size = h.Size
	switch table, part := partOf(h.Name); {
	case h.Typeflag != tar.TypeReg:
		return "", damaged("%.80q is no plain file", h.Name)
	case r.last:
		return "", damaged("%.80q comes behind the manifest", h.Name)
	case h.Name == manifestName:
		r.last = true
	case h.Name == projectName && !r.began:
	case isFile(h.Name) && r.table == "":
	case table != "" && (table == r.table && part == r.part+1 || table != r.table && part == 1):
		r.table, r.part = table, part
	default:
		return "", damaged("%.80q does not belong there", h.Name)
	}
	r.began = true
	return h.Name, nil
}

// isFile says whether an entry is the bytes of a file; what its name may be knows who stores it.
func isFile(name string) bool {
	blob, ok := strings.CutPrefix(name, filesPrefix)
	return ok && blob != "" && !strings.ContainsAny(blob, "/\\")
}

// partOf reads the name of a part of a table; "" for another name.
func partOf(name string) (table string, part int) {
	rest, ok := strings.CutPrefix(name, "tables/")
	table, number, found := strings.Cut(rest, "/")
	if !ok || !found {
		return "", 0
	}
	if _, err := fmt.Sscanf(number, "%d.jsonl", &part); err != nil || fmt.Sprintf(partName, table, part) != name {
		return "", 0
	}
	return table, part
}

// end reads behind the last entry, so that the checksum of all is compared: there is nothing but padding.
func (r *reader) end() error {
	rest := make([]byte, 32<<10)
	for {
		n, err := r.left.Read(rest)
		if len(bytes.Trim(rest[:n], "\x00")) > 0 {
			return damaged("something lies behind its end")
		}
		if errors.Is(err, io.EOF) && r.left.N > 0 {
			return io.EOF
		}
		if err != nil {
			return r.fault(err)
		}
	}
}

// whole reads an entry of bounded size.
func (r *reader) whole(name string, max int64) ([]byte, error) {
	if r.size > max {
		return nil, damaged("%s has %d bytes, more than the %d that such a file may have", name, r.size, max)
	}
	var b bytes.Buffer // grows with what comes, not with what the header says
	if _, err := io.Copy(&b, r.tar); err != nil {
		return nil, r.fault(err)
	}
	return b.Bytes(), nil
}

// maxTables is how many tables an archive may name.
const maxTables = 1000

// verifier keeps what was read until the manifest comes.
type verifier struct {
	sums     map[string]*store.Sum
	project  *File
	files    *filesSum
	manifest *Manifest
}

func (v *verifier) take(name string, r *reader) error {
	switch name {
	case projectName:
		h := sha256.New()
		n, err := io.Copy(h, r.tar)
		if err != nil {
			return r.fault(err)
		}
		v.project = &File{n, hex.EncodeToString(h.Sum(nil))}
		return nil
	case manifestName:
		text, err := r.whole(name, maxManifest)
		if err != nil {
			return err
		}
		return v.read(text)
	}
	if isFile(name) {
		if _, err := v.files.add(io.Discard, r.blob(name)); err != nil {
			return r.fault(err)
		}
		return nil
	}
	lines, err := r.whole(name, maxPart)
	if err != nil {
		return err
	}
	switch s := v.sums[r.table]; {
	case !bytes.HasSuffix(lines, []byte("\n")):
		return damaged("%s does not end with a whole row", name)
	case s != nil:
		s.Add(lines)
	case len(v.sums) == maxTables:
		return damaged("it has more than %d tables", maxTables)
	default:
		v.sums[r.table] = store.NewSum()
		v.sums[r.table].Add(lines)
	}
	return nil
}

func (v *verifier) read(text []byte) error {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return damaged("its manifest cannot be read (%v)", err)
	}
	if head.Format > Format {
		return hob.Errorf(hob.Invalid, "the archive has the format %d, but this Hob knows only up to %d: use the newer Hob", head.Format, Format)
	}
	if head.Format < 1 {
		return damaged("its manifest names no format")
	}
	v.manifest = &Manifest{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v.manifest); err != nil {
		return damaged("its manifest cannot be read (%v)", err)
	}
	return nil
}

// compare holds what was read against the manifest.
func (v *verifier) compare() error {
	for _, t := range v.manifest.Store.Tables {
		s := v.sums[t.Name]
		if s == nil {
			s = store.NewSum()
		}
		delete(v.sums, t.Name) // a second one of the name has no rows then
		if got := s.Table(t.Name, t.Columns); got.Rows != t.Rows || got.SHA256 != t.SHA256 {
			return damaged("table %.80q has %d rows with the digest %s, but the manifest says %d with %.64s", t.Name, got.Rows, got.SHA256, t.Rows, t.SHA256)
		}
	}
	for name := range v.sums {
		return damaged("table %.80q is not in its manifest", name)
	}
	bytes := v.files.files()
	if said := v.manifest.Files; said != nil {
		bytes.Elsewhere = said.Elsewhere
		if *said != *bytes {
			return damaged("the files are not what the manifest says")
		}
	} else if v.files.count > 0 || v.manifest.Format > 1 {
		return damaged("its manifest says nothing of the files")
	}
	said, got := v.manifest.Project, v.project
	if (said == nil) != (got == nil) || said != nil && *said != *got {
		return damaged("%s is not what the manifest says", projectName)
	}
	return nil
}

// Chunks reads the rows once more, for loading them.
func (a *Archive) Chunks() iter.Seq2[store.Chunk, error] {
	return func(yield func(store.Chunk, error) bool) {
		r, err := a.open()
		for err == nil {
			var name string
			if name, err = r.next(); errors.Is(err, io.EOF) {
				return
			}
			if err != nil || name == projectName || name == manifestName || isFile(name) {
				continue
			}
			var lines []byte
			if lines, err = r.whole(name, maxPart); err == nil && !yield(store.Chunk{Table: r.table, Lines: lines}, nil) {
				return
			}
		}
		yield(store.Chunk{}, err)
	}
}

// Project writes the agents' SQLite file, which the archive has.
func (a *Archive) Project(w io.Writer) error {
	r, err := a.open()
	if err != nil {
		return err
	}
	name, err := r.next()
	if err != nil {
		return err
	}
	if name != projectName || a.Manifest.Project == nil {
		return damaged("it has no %s", projectName)
	}
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, h), r.tar); err != nil {
		return fmt.Errorf("write the project database: %w", err)
	}
	if hex.EncodeToString(h.Sum(nil)) != a.Manifest.Project.SHA256 {
		return damaged("%s changed while it was read", projectName)
	}
	return nil
}

// blob is the entry that was just found, as the bytes of a file.
func (r *reader) blob(name string) Blob {
	return Blob{Name: strings.TrimPrefix(name, filesPrefix), Size: r.size, Body: r.tar}
}

// Blobs gives the bytes of files, each to be read before the next.
func (a *Archive) Blobs() iter.Seq2[Blob, error] {
	return func(yield func(Blob, error) bool) {
		r, err := a.open()
		for err == nil {
			var name string
			if name, err = r.next(); errors.Is(err, io.EOF) || r.table != "" || r.last {
				return // all of them come before the rows
			}
			if err == nil && isFile(name) && !yield(r.blob(name), nil) {
				return
			}
		}
		yield(Blob{}, err)
	}
}

package agentsql

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// maxSQLiteTemp is how many bytes of temporary files one statement may fill:
// what it sorts and groups lies there, so that it takes little memory.
const maxSQLiteTemp = 256 << 20

// tempFiles is the system's own file layer of the engine, with a bound on the
// temporary files of each connection: the engine itself has none.
//
// The engine holds its structures by address and calls back by the address of
// function values; both live as long as the tempFiles, which connections keep.
type tempFiles struct {
	name   string
	system uintptr // the system's layer
	layer  uintptr // this one

	open  openFunc
	write writeFunc
	end   closeFunc

	mu       sync.Mutex
	replaced map[uintptr]uintptr             // a table of file functions of ours, by the system's
	original map[uintptr]uintptr             // and the other way round
	used     map[*libc.TLS]map[uintptr]int64 // bytes, by connection and file
}

// The engine's signatures of the functions that are replaced.
type (
	openFunc  func(tls *libc.TLS, layer, name, file uintptr, flags int32, outFlags uintptr) int32
	writeFunc func(tls *libc.TLS, file, data uintptr, n int32, offset sqlite3.Tsqlite3_int64) int32
	closeFunc func(tls *libc.TLS, file uintptr) int32
)

// newTempFiles registers a layer with the engine.
func newTempFiles() (*tempFiles, error) {
	tls := libc.NewTLS()
	defer tls.Close()
	if rc := sqlite3.Xsqlite3_initialize(tls); rc != sqlite3.SQLITE_OK {
		return nil, fmt.Errorf("start the SQLite engine: code %d", rc)
	}
	f := &tempFiles{
		system: sqlite3.Xsqlite3_vfs_find(tls, 0), replaced: map[uintptr]uintptr{}, original: map[uintptr]uintptr{},
		used: map[*libc.TLS]map[uintptr]int64{},
	}
	if f.system == 0 {
		return nil, errors.New("the SQLite engine has no file layer")
	}
	f.open, f.write, f.end = f.openFile, f.writeFile, f.closeFile
	f.name = fmt.Sprintf("hob-agents-%p", f)
	name, err := libc.CString(f.name)
	if err != nil {
		return nil, fmt.Errorf("name the file layer: %w", err)
	}
	var vfs sqlite3.Tsqlite3_vfs
	f.layer = copyOf(tls, f.system, unsafe.Sizeof(vfs))
	libc.AtomicStorePUintptr(f.layer+unsafe.Offsetof(vfs.FpNext), 0)
	libc.AtomicStorePUintptr(f.layer+unsafe.Offsetof(vfs.FzName), name)
	libc.AtomicStorePUintptr(f.layer+unsafe.Offsetof(vfs.FxOpen), callback(&f.open))
	if rc := sqlite3.Xsqlite3_vfs_register(tls, f.layer, 0); rc != sqlite3.SQLITE_OK {
		return nil, fmt.Errorf("register the file layer: code %d", rc)
	}
	return f, nil
}

// copyOf copies a structure of the engine's into memory of its own kind, which
// is never given back: there are a few, of some hundred bytes.
func copyOf(tls *libc.TLS, from, size uintptr) uintptr {
	to := libc.Xmalloc(tls, libc.Tsize_t(size))
	return libc.Xmemcpy(tls, to, from, libc.Tsize_t(size))
}

// close takes the layer out of the engine's list; connections that are open go
// on with it.
func (f *tempFiles) close() {
	tls := libc.NewTLS()
	defer tls.Close()
	sqlite3.Xsqlite3_vfs_unregister(tls, f.layer)
	runtime.KeepAlive(f)
}

// function is the function value at an address that callback gave.
func function[F any](address uintptr) F {
	return *(*F)(unsafe.Pointer(&struct{ uintptr }{address}))
}

func (f *tempFiles) openFile(tls *libc.TLS, _, name, file uintptr, flags int32, outFlags uintptr) int32 {
	var vfs sqlite3.Tsqlite3_vfs
	open := function[openFunc](libc.AtomicLoadPUintptr(f.system + unsafe.Offsetof(vfs.FxOpen)))
	rc := open(tls, f.system, name, file, flags, outFlags)
	const temporary = sqlite3.SQLITE_OPEN_DELETEONCLOSE
	if rc != sqlite3.SQLITE_OK || flags&temporary == 0 {
		return rc
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	functions := libc.AtomicLoadPUintptr(file) // the first field of a file
	ours, known := f.replaced[functions]
	if !known {
		var table sqlite3.Tsqlite3_io_methods
		ours = copyOf(tls, functions, unsafe.Sizeof(table))
		libc.AtomicStorePUintptr(ours+unsafe.Offsetof(table.FxWrite), callback(&f.write))
		libc.AtomicStorePUintptr(ours+unsafe.Offsetof(table.FxClose), callback(&f.end))
		f.replaced[functions], f.original[ours] = ours, functions
	}
	libc.AtomicStorePUintptr(file, ours)
	if f.used[tls] == nil {
		f.used[tls] = map[uintptr]int64{}
	}
	f.used[tls][file] = 0
	return rc
}

// systems is the table of the system's functions of a file.
func (f *tempFiles) systems(file uintptr) uintptr {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.original[libc.AtomicLoadPUintptr(file)]
}

func (f *tempFiles) writeFile(tls *libc.TLS, file, data uintptr, n int32, offset sqlite3.Tsqlite3_int64) int32 {
	if !f.grow(tls, file, offset+int64(n)) {
		return sqlite3.SQLITE_FULL
	}
	var table sqlite3.Tsqlite3_io_methods
	return function[writeFunc](libc.AtomicLoadPUintptr(f.systems(file)+unsafe.Offsetof(table.FxWrite)))(tls, file, data, n, offset)
}

// grow reports whether a file may reach a size.
func (f *tempFiles) grow(tls *libc.TLS, file uintptr, size int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	files := f.used[tls]
	if size <= files[file] {
		return true
	}
	total := size - files[file]
	for _, use := range files {
		total += use
	}
	if files == nil || total > maxSQLiteTemp {
		return false
	}
	files[file] = size
	return true
}

func (f *tempFiles) closeFile(tls *libc.TLS, file uintptr) int32 {
	functions := f.systems(file)
	f.mu.Lock()
	if delete(f.used[tls], file); len(f.used[tls]) == 0 {
		delete(f.used, tls)
	}
	f.mu.Unlock()
	var table sqlite3.Tsqlite3_io_methods
	return function[closeFunc](libc.AtomicLoadPUintptr(functions+unsafe.Offsetof(table.FxClose)))(tls, file)
}

// tempFolder is where the engine would put temporary files; "" where it finds
// no folder to write to, and keeps them in memory.
func tempFolder() string {
	for _, dir := range []string{os.Getenv("SQLITE_TMPDIR"), os.Getenv("TMPDIR"), "/var/tmp", "/usr/tmp", "/tmp", "."} {
		if dir == "" {
			continue
		}
		probe, err := os.CreateTemp(dir, "hob-*")
		if err != nil {
			continue
		}
		probe.Close()
		os.Remove(probe.Name()) //nolint:errcheck // an empty file more
		return dir
	}
	return ""
}

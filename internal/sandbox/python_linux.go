//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// interpreter is a python3 and everything of the machine that it needs to run: nothing else is shown to a program.
type interpreter struct {
	Path  string
	Paths []string // files and folders to show, the interpreter's own among them
	Cover []string // folders in these that are not shown: packages that are installed beside the standard library
	Libs  string   // where the dynamic linker looks
	// Asyncio is the file of the package asyncio, which is shown changed; "": there is none.
	Asyncio string
}

// usualPythons are where distributions and images put theirs.
func usualPythons() []string {
	return []string{"/usr/local/bin/python3", "/usr/bin/python3", "/bin/python3"}
}

// askTime bounds asking an interpreter about itself.
const askTime = 20 * time.Second

// askPython prints where the standard library is.
const askPython = `import sys, sysconfig, json
print(json.dumps({"version": sys.version_info[:2], "dirs": [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]}))`

// findPython finds an interpreter that can be shown to programs: the given one, or the first of the usual ones.
func findPython(ctx context.Context, given string) (*interpreter, error) {
	if given != "" {
		return inspectPython(ctx, given)
	}
	var errs []error
	for _, path := range usualPythons() {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		p, err := inspectPython(ctx, path)
		if err == nil {
			return p, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, errors.New("python3 is not installed on this machine (looked at " + strings.Join(usualPythons(), ", ") + ")")
	}
	return nil, errors.Join(errs...)
}

func inspectPython(ctx context.Context, path string) (*interpreter, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, real, "-I", "-S", "-c", askPython)
	cmd.Env = []string{}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its library: %w", real, err)
	}
	var said struct {
		Version [2]int
		Dirs    []string
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return nil, fmt.Errorf("ask %s for its library: %w", real, err)
	}
	if said.Version[0] != 3 || said.Version[1] < 8 {
		return nil, fmt.Errorf("%s is Python %d.%d; 3.8 or later is needed", real, said.Version[0], said.Version[1])
	}
	p := &interpreter{Path: real, Paths: []string{real}}
	binaries := []string{real}
	slices.Sort(said.Dirs)
	for _, dir := range slices.Compact(said.Dirs) {
		p.Paths = append(p.Paths, dir)
		for _, name := range []string{"site-packages", "dist-packages"} {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.IsDir() {
				p.Cover = append(p.Cover, filepath.Join(dir, name))
			}
		}
		if asyncio := filepath.Join(dir, "asyncio", "__init__.py"); p.Asyncio == "" {
			if info, err := os.Stat(asyncio); err == nil && info.Mode().IsRegular() {
				p.Asyncio = asyncio
			}
		}
		extensions, _ := filepath.Glob(filepath.Join(dir, "lib-dynload", "*.so")) // the pattern is sound
		binaries = append(binaries, extensions...)
	}
	libs, dirs, err := libraries(binaries)
	if err != nil {
		return nil, err
	}
	p.Paths = append(p.Paths, libs...)
	p.Libs = strings.Join(dirs, ":")
	if _, err := os.Stat(zones); err == nil {
		p.Paths = append(p.Paths, zones)
	}
	for _, path := range p.Paths {
		if strings.HasPrefix(path, stageDir+"/") {
			return nil, fmt.Errorf("%s lies in %s, which programs have for themselves", path, stageDir)
		}
	}
	return p, nil
}

// zones are the rules of time zones.
const zones = "/usr/share/zoneinfo"

// libraries finds what binaries are linked with, as the dynamic linker would, and the folders where it is. A library that
// an extension of the standard library lacks is left out: the extension then cannot be imported, as on the machine itself.
func libraries(binaries []string) (files, dirs []string, err error) {
	seen := map[string]bool{}
	for i := 0; i < len(binaries); i++ {
		b, err := readBinary(binaries[i])
		if err != nil {
			if i == 0 {
				return nil, nil, err
			}
			continue
		}
		if b.linker != "" && !seen[b.linker] {
			seen[b.linker] = true
			files = append(files, b.linker)
		}
		if i == 0 && b.linker != "" {
			b.needs = append(b.needs, "libgcc_s.so.1") // the C library loads it when a thread is ended
		}
		for _, name := range b.needs {
			if seen[name] {
				continue
			}
			for _, dir := range append(b.paths, libraryDirs()...) {
				path := filepath.Join(dir, name)
				if _, err := os.Stat(path); err != nil || seen[path] {
					continue
				}
				seen[name], seen[path] = true, true
				files, binaries = append(files, path), append(binaries, path)
				if !slices.Contains(dirs, dir) {
					dirs = append(dirs, dir)
				}
				break
			}
		}
	}
	return files, dirs, nil
}

func libraryDirs() []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	return []string{"/lib/" + triplet, "/usr/lib/" + triplet, "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"}
}

// linked is what a binary asks of the dynamic linker.
type linked struct {
	linker       string
	needs, paths []string
}

func readBinary(path string) (linked, error) {
	f, err := elf.Open(path)
	if err != nil {
		return linked{}, fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	var l linked
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
			if err != nil {
				return linked{}, fmt.Errorf("read %s: %w", path, err)
			}
			l.linker = string(bytes.TrimRight(b, "\x00"))
		}
	}
	if l.needs, err = f.ImportedLibraries(); err != nil {
		return linked{}, fmt.Errorf("read %s: %w", path, err)
	}
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		paths, _ := f.DynString(tag) // most have none
		for _, p := range paths {
			for dir := range strings.SplitSeq(p, ":") {
				l.paths = append(l.paths, filepath.Clean(strings.ReplaceAll(dir, "$ORIGIN", filepath.Dir(path))))
			}
		}
	}
	return l, nil
}

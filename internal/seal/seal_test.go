package seal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"hob/internal/seal"
)

func key(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, seal.KeySize))
}

func box(t *testing.T, file, env string) *seal.Box {
	t.Helper()
	b, err := seal.Open(file, env)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOpen_FileIsMadeOnceAndKeepsItsKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "seal.key")
	sealed := box(t, file, "").Seal("here", []byte("secret"))
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("key file has mode %04o, want 0600", info.Mode().Perm())
	}
	if got, err := box(t, file, "").Open("here", sealed); err != nil || string(got) != "secret" {
		t.Errorf("after reopening: %q, %v", got, err)
	}
	if rest, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".seal-*")); len(rest) > 0 {
		t.Errorf("left behind: %v", rest)
	}
}

func TestOpen_ProcessesThatStartTogetherShareOneKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "seal.key")
	prints := make([]string, 16)
	var wg sync.WaitGroup
	for i := range prints {
		wg.Go(func() {
			if b, err := seal.Open(file, ""); err == nil {
				prints[i] = b.Fingerprint()
			}
		})
	}
	wg.Wait()
	for i, p := range prints {
		if p == "" || p != prints[0] {
			t.Fatalf("opener %d has key %q, the first has %q", i, p, prints[0])
		}
	}
}

func TestOpen_Refuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, content, env, want string
		mode                     os.FileMode
	}{
		{"a file others may read", key(1), "", "chmod 600", 0o640},
		{"a file others may write", key(1), "", "chmod 600", 0o602},
		{"a file with a short key", "c2hvcnQ=", "", "32 bytes in base64", 0o600},
		{"a file with something behind the key", key(1) + key(2), "", "32 bytes in base64", 0o600},
		{"an empty file", "", "", "seal.key", 0o600},
		{"a bad variable", key(1), "not base64!", seal.EnvKey, 0o600},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "seal.key")
			if err := os.WriteFile(file, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, tt.mode); err != nil {
				t.Fatal(err)
			}
			_, err := seal.Open(file, tt.env)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want one with %q", err, tt.want)
			}
			if tt.content != "" && strings.Contains(err.Error(), tt.content) {
				t.Error("the error shows the key")
			}
			if now, _ := os.ReadFile(file); string(now) != tt.content {
				t.Error("the file was changed")
			}
		})
	}
	if _, err := seal.Open(filepath.Join(t.TempDir(), "no", "folder"), ""); err == nil {
		t.Error("a key file in a missing folder was accepted")
	}
	if _, err := seal.Open(t.TempDir(), ""); err == nil {
		t.Error("a folder was accepted as key file")
	}
}

func TestOpen_VariableComesBeforeTheFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "seal.key")
	b := box(t, file, " "+key(7)+"\n")
	if b.Source() != seal.EnvKey {
		t.Errorf("source %q, want %q", b.Source(), seal.EnvKey)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Error("a key file was made although the variable is set")
	}
	if b.Fingerprint() == box(t, file, key(8)).Fingerprint() {
		t.Error("two keys have one fingerprint")
	}
}

func TestBox_ValueOpensOnlyWithItsKeyAtItsPlace(t *testing.T) {
	t.Parallel()
	a, b := box(t, "", key(1)), box(t, "", key(2))
	here := seal.Context("tools", "id", "headers")
	for _, plain := range []string{"", "x", strings.Repeat("long ", 1000)} {
		sealed := a.Seal(here, []byte(plain))
		if got, err := a.Open(here, sealed); err != nil || string(got) != plain {
			t.Fatalf("open: %q, %v", got, err)
		}
		if len(plain) > 0 && bytes.Contains(sealed, []byte(plain)) {
			t.Error("the sealed value shows its content")
		}
		if bytes.Equal(sealed, a.Seal(here, []byte(plain))) {
			t.Error("sealing twice gave the same value: the nonce repeats")
		}
		refused := map[string]func() ([]byte, error){
			"another key":   func() ([]byte, error) { return b.Open(here, sealed) },
			"another place": func() ([]byte, error) { return a.Open(seal.Context("tools", "id2", "headers"), sealed) },
			"cut":           func() ([]byte, error) { return a.Open(here, sealed[:len(sealed)-1]) },
			"empty":         func() ([]byte, error) { return a.Open(here, nil) },
		}
		for i := range sealed {
			if i < 40 {
				changed := bytes.Clone(sealed)
				changed[i] ^= 1
				refused["changed at "+string(rune('0'+i))] = func() ([]byte, error) { return a.Open(here, changed) }
			}
		}
		for name, open := range refused {
			if got, err := open(); !errors.Is(err, seal.ErrOpen) || got != nil {
				t.Errorf("%s: %q, %v, want ErrOpen", name, got, err)
			}
		}
	}
}

func TestContext_PlacesDoNotMeet(t *testing.T) {
	t.Parallel()
	if seal.Context("a|b", "c", "d") == seal.Context("a", "b|c", "d") {
		t.Error("two places have one name")
	}
}

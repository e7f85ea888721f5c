// Package seal keeps secrets unreadable at rest: AES-256-GCM under one key that lies beside the data or comes from the
// environment, each sealed value bound to the place it belongs to.
//
// It is not for passwords or API keys, which are kept as hashes, nor for whole files, and it keeps nothing itself: the
// caller stores what Seal returns.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// KeySize is the length of a seal key in bytes.
const KeySize = 32

// EnvKey names the environment variable that may hold the key, base64 of KeySize bytes.
const EnvKey = "HOB_SEAL_KEY"

// version begins every sealed value, so that another cipher can be told apart later.
const version = 1

// ErrOpen is what a sealed value gives that was made with another key, belongs to another place or was changed.
var ErrOpen = errors.New("the sealed value does not open: it was sealed with another key, for another place, or was changed")

// Box seals and opens. It is safe for concurrent use.
type Box struct {
	aead        cipher.AEAD
	fingerprint string
	source      string
}

// Context names the place a sealed value belongs to; a value moved to another place does not open. The parts are
// lengthened by their own lengths so that no two places share a name.
func Context(table, row, field string) string {
	return fmt.Sprintf("%d:%s|%d:%s|%d:%s", len(table), table, len(row), row, len(field), field)
}

// Open returns the box of the key in env (the value of HOB_SEAL_KEY) or, where that is empty, of the key in keyFile. A
// missing file is made with a random key and mode 0600; a file that others may read or write is refused.
func Open(keyFile, env string) (*Box, error) {
	if env = strings.TrimSpace(env); env != "" {
		key, err := decode(env)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", EnvKey, err)
		}
		return newBox(key, EnvKey)
	}
	key, err := readFile(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeFile(keyFile); err != nil {
			return nil, err
		}
		key, err = readFile(keyFile)
	}
	if err != nil {
		return nil, err
	}
	return newBox(key, keyFile)
}

func newBox(key []byte, source string) (*Box, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("seal key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("seal key: %w", err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("hob seal key fingerprint"))
	return &Box{aead: aead, fingerprint: hex.EncodeToString(mac.Sum(nil)[:8]), source: source}, nil
}

// Seal returns plain encrypted and bound to context; each call gives another value.
func (b *Box) Seal(context string, plain []byte) []byte {
	out := make([]byte, 1, 1+len(plain)+b.aead.Overhead())
	out[0] = version
	return b.aead.Seal(out, nil, plain, []byte(context))
}

// Open returns what was sealed for context. The error is ErrOpen; it never holds a part of the value.
func (b *Box) Open(context string, sealed []byte) ([]byte, error) {
	if len(sealed) < 1+b.aead.Overhead() || sealed[0] != version {
		return nil, ErrOpen
	}
	plain, err := b.aead.Open(nil, nil, sealed[1:], []byte(context))
	if err != nil {
		return nil, ErrOpen
	}
	return plain, nil
}

// Fingerprint tells keys apart and tells nothing else about them: 16 hex digits.
func (b *Box) Fingerprint() string { return b.fingerprint }

// Source says where the key came from, for messages: the file's name or the environment variable's.
func (b *Box) Source() string { return b.source }

func decode(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if key, err := enc.DecodeString(text); err == nil && len(key) == KeySize {
			return key, nil
		}
	}
	return nil, fmt.Errorf("the seal key must be %d bytes in base64; make one with: openssl rand -base64 %d", KeySize, KeySize)
}

// readFile reads the key from a file that only its owner may touch. Mode and content are those of one open file.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("seal key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("seal key: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("seal key: %s is not a file", name)
	}
	if mode := info.Mode().Perm(); mode&^0o600 != 0 {
		return nil, fmt.Errorf("seal key: %s has mode %04o, so others may read it; run: chmod 600 %s", name, mode, name)
	}
	text := make([]byte, 256)
	n, err := f.Read(text)
	if err != nil {
		return nil, fmt.Errorf("seal key: read %s: %w", name, err)
	}
	key, err := decode(string(text[:n]))
	if err != nil {
		return nil, fmt.Errorf("seal key: %s: %w", name, err)
	}
	return key, nil
}

// makeFile writes a new key. It is complete before it has its name, and never replaces a key that is there: two
// processes that start together end with the same one.
func makeFile(name string) error {
	key := make([]byte, KeySize)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("seal key: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".seal-*") // made with mode 0600
	if err != nil {
		return fmt.Errorf("seal key: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // its other name is the one that counts
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("seal key: write %s: %w", name, err)
	}
	if err := os.Link(f.Name(), name); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("seal key: %w", err)
	}
	return syncDir(filepath.Dir(name))
}

// syncDir makes a new name durable: secrets sealed under a key that a power cut takes away are lost.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("seal key: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("seal key: sync %s: %w", dir, err)
	}
	return nil
}

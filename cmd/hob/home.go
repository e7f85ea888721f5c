package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"hob"
	"hob/internal/config"
)

// Files in the data folder, beside those of the packages that own them.
const (
	lockFile       = "hob.lock"
	serviceKeyFile = "service.key"
	sealKeyFile    = "seal.key"
	projectFile    = "project.db"
)

// maxKeyFile is the largest service.key that is read.
const maxKeyFile = config.MaxSecretSize

// makeFolder makes the data folder for its owner alone. One that exists keeps its mode; hob doctor judges it.
func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the data folder: %w", err)
	}
	if !info.IsDir() {
		return hob.Errorf(hob.Invalid, "the data folder %s is a file; choose another with --data", dir)
	}
	return nil
}

// lockFolder makes sure that no other process serves from the same folder: SQLite has one writer, and two engines on one
// file would drive the same runs. The lock is the kernel's, so it ends with the process, however that ends.
func lockFolder(dir string) (unlock func(), err error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock the data folder: %w", err)
		}
		holder := make([]byte, 32)
		n, _ := f.Read(holder) // who holds it is only for the message
		who := "another hob serve"
		if pid := strings.TrimSpace(string(holder[:n])); pid != "" {
			who += " (process " + pid + ")"
		}
		return nil, hob.Errorf(hob.Conflict, "%s uses the data folder %s; stop it, or choose another folder with --data. "+
			"Several servers need a Postgres database, see --database", who, dir)
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	return func() { f.Close() }, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// readServiceKey reads the first service key; "" where there is no file.
func readServiceKey(dir string) (hob.Secret, error) {
	path := filepath.Join(dir, serviceKeyFile)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the service key: %w", err)
	case info.Mode().Perm()&0o077 != 0:
		return "", hob.Errorf(hob.Invalid, "%s may be read by others (mode %04o); run: chmod 600 %s", path, info.Mode().Perm(), path)
	case info.Size() > maxKeyFile:
		return "", hob.Errorf(hob.Invalid, "%s is larger than %d bytes: that is no key", path, maxKeyFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the service key: %w", err)
	}
	return hob.Secret(strings.TrimSpace(string(b))), nil
}

// writeServiceKey keeps the first service key, whole or not at all, before the store knows it: a start that dies in
// between finds it again.
func writeServiceKey(dir string, key hob.Secret) (err error) {
	f, err := os.CreateTemp(dir, serviceKeyFile+"-*") // made with mode 0600
	if err != nil {
		return fmt.Errorf("keep the service key: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep the service key: %w", errors.Join(err, os.Remove(f.Name())))
		}
	}()
	_, err = f.WriteString(string(key) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, serviceKeyFile))
}

// clientKey finds the key that the commands send: HOB_KEY, else the server's own first one.
func clientKey(c config.Config) (hob.Secret, error) {
	if c.Key != "" {
		return c.Key, nil
	}
	if c.ServiceKey != "" {
		return c.ServiceKey, nil
	}
	key, err := readServiceKey(c.Data)
	if err == nil && key == "" {
		err = hob.Errorf(hob.Unauthorized, "there is no key: set HOB_KEY, or point --data at the server's data folder (%s has no %s)",
			c.Data, serviceKeyFile)
	}
	return key, err
}

package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"hob"
)

// The setters check one value and store it. Their errors continue a sentence that begins with the option's name and
// do not repeat the value: it may be a secret that slipped into the wrong option.

func setAddr(to *string, v string) error {
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		return errors.New("must be host:port")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return errors.New("must have a port from 0 to 65535")
	}
	if strings.ContainsAny(host, " /@") {
		return errors.New("must be host:port, without a scheme or path")
	}
	*to = v
	return nil
}

func setPath(to *string, v string) error {
	if strings.ContainsRune(v, 0) || strings.TrimSpace(v) == "" {
		return errors.New("must be the path of a folder")
	}
	*to = v
	return nil
}

func setPostgres(to *string, v string) error {
	u, err := url.Parse(v)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return errors.New("must be a URL that begins with postgres://, or be left empty for SQLite")
	}
	if len(u.Path) < 2 {
		return errors.New("must name the database at its end")
	}
	*to = v
	return nil
}

func setURL(to *string, v string) error {
	u, err := url.Parse(v)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return errors.New("must be an address that begins with http:// or https://")
	}
	switch {
	case u.User != nil:
		return errors.New("must not hold a user or password; keys have variables of their own")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("must not have a query or fragment")
	}
	*to = strings.TrimRight(v, "/")
	return nil
}

// ollamaPort is where Ollama listens unless told otherwise.
const ollamaPort = "11434"

// setOllama reads OLLAMA_HOST as Ollama's own tools do: a URL, host:port or a bare host. Their server reads the same
// variable as an address to listen on, so an unspecified address means this machine.
func setOllama(to *string, v string) error {
	if !strings.Contains(v, "://") {
		v = "http://" + v
	}
	u, err := url.Parse(v)
	if err != nil {
		return errors.New("must be an address")
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = map[string]string{"http": ollamaPort, "https": "443"}[u.Scheme]
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if host == "" {
		return errors.New("must name a host")
	}
	u.Host = net.JoinHostPort(host, port)
	return setURL(to, u.String())
}

func setSecret(to *hob.Secret, v string) error {
	if len(v) > MaxSecretSize {
		return fmt.Errorf("must have at most %d characters", MaxSecretSize)
	}
	for _, r := range v {
		if r <= ' ' || r > '~' {
			return errors.New("must be printable ASCII without blanks")
		}
	}
	*to = hob.Secret(v)
	return nil
}

func setDuration(to *time.Duration, v string, most time.Duration) error {
	d, err := time.ParseDuration(v)
	if err != nil {
		return errors.New("must be a duration with its unit")
	}
	if d < 0 || d > most {
		return fmt.Errorf("must be from 0 to %s", most)
	}
	*to = d
	return nil
}

func setCount(to *int, v string, most int) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		return fmt.Errorf("must be a whole number from 1 to %d", most)
	}
	*to = n
	return nil
}

func setSwitch(to *bool, v string) error {
	switch strings.ToLower(v) {
	case "on", "true", "yes", "1":
		*to = true
	case "off", "false", "no", "0":
		*to = false
	default:
		return errors.New("must be on or off")
	}
	return nil
}

func setLog(c *Config, v string) error {
	level, form, _ := strings.Cut(strings.ToLower(v), ",")
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
	l, ok := levels[level]
	if !ok {
		return errors.New("must be debug, info, warn or error")
	}
	switch f := LogFormat(form); f {
	case LogAuto, LogText, LogJSON:
		c.LogLevel, c.LogFormat = l, f
	default:
		return errors.New("must end with ,text or ,json where a form is given")
	}
	return nil
}

// setList splits a comma list. Blanks around items and empty items are dropped.
func setList(to *[]string, v string, check func(string) error) error {
	var items []string
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if err := check(item); err != nil {
			return err
		}
		items = append(items, item)
	}
	if len(items) > MaxListItems {
		return fmt.Errorf("must have at most %d items", MaxListItems)
	}
	*to = items
	return nil
}

func checkOrigin(item string) error {
	u, err := url.Parse(item)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		return fmt.Errorf("must hold origins like https://app.example.com, not %q", item)
	}
	if u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("must hold origins without a path or final slash, not %q", item)
	}
	return nil
}

// redact hides the password in a URL.
func redact(v string) string {
	u, err := url.Parse(v)
	if err != nil || u.User == nil {
		return v
	}
	q := u.Query()
	if q.Has("password") {
		q.Set("password", "xxxxx")
		u.RawQuery = q.Encode()
	}
	return u.Redacted()
}

// setStorage reads the address of an S3-compatible bucket. Its keys are options of their own.
func setStorage(to *string, v string) error {
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Scheme != "s3" || u.Host == "":
		return errors.New("must be s3://bucket or s3://bucket/prefix, with endpoint and region behind a question mark")
	case u.User != nil:
		return errors.New("must hold no keys; set HOB_STORAGE_ACCESS_KEY and HOB_STORAGE_SECRET_KEY")
	}
	for name, values := range u.Query() {
		switch {
		case name != "endpoint" && name != "region" && name != "path_style":
			return fmt.Errorf("must not have the parameter %q; endpoint, region and path_style are known", name)
		case len(values) != 1:
			return fmt.Errorf("must have the parameter %s once", name)
		case name == "endpoint":
			if err := setURL(new(string), values[0]); err != nil {
				return fmt.Errorf("has an endpoint that %w", err)
			}
		}
	}
	*to = v
	return nil
}

func setSandbox(to *SandboxMode, v string) error {
	switch m := SandboxMode(v); m {
	case SandboxAuto, SandboxOff, SandboxWeak:
		*to = m
		return nil
	}
	return errors.New("must be auto, weak or off")
}

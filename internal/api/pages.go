package api

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"hob"
)

// The pages load nothing from elsewhere and hold no inline script or style, so that the policy can forbid both.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed page
var pageFiles embed.FS

// servePage answers with an embedded file.
func servePage(name string) func(*call) error {
	return func(c *call) error {
		data, err := pageFiles.ReadFile("page/" + name)
		if err != nil {
			return hob.Wrap("read a page", err)
		}
		c.page(name, data)
		return nil
	}
}

// serveIndex is the one page at the root: what this is, whether it works and with which model, what to type first.
func serveIndex(c *call) error {
	t, err := c.s.index()
	if err != nil {
		return hob.Wrap("read the index page", err)
	}
	shows := indexView{Version: c.s.Version, Origin: c.origin()}
	if c.s.DefaultModel != nil {
		shows.Model, shows.Warning = c.s.DefaultModel(c.Context(), "")
		shows.Warning = sentence(shows.Warning)
	}
	var page bytes.Buffer
	if err := t.Execute(&page, shows); err != nil {
		return hob.Wrap("make the index page", err)
	}
	c.page("index.html", page.Bytes())
	return nil
}

// indexView is what the index shows. Whoever reaches the server reads it, so nothing of it is anybody's own.
type indexView struct {
	Version string
	Origin  string // as the reader reached the server
	Model   string // of agents that name none
	Warning string // says that it is only a demo, and what to do
}

// origin is the address at which the client reached the server, by what it and a proxy in between say.
func (c *call) origin() string {
	if c.TLS != nil || strings.EqualFold(c.Header.Get("X-Forwarded-Proto"), "https") {
		return "https://" + c.Host
	}
	return "http://" + c.Host
}

func parseIndex() (*template.Template, error) {
	return template.ParseFS(pageFiles, "page/index.html")
}

// sentence makes a warning begin as a sentence does.
func sentence(text string) string {
	r, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(r)) + text[size:]
}

func (c *call) page(name string, data []byte) {
	kind := "text/html; charset=utf-8"
	switch {
	case strings.HasSuffix(name, ".js"):
		kind = "text/javascript; charset=utf-8"
	case strings.HasSuffix(name, ".svg"):
		kind = "image/svg+xml"
	case strings.HasSuffix(name, ".css"):
		kind = "text/css; charset=utf-8"
	}
	h := c.w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-cache")
	_ = c.rc.SetWriteDeadline(socketTime(c.s.Limits.WriteTime))
	c.w.WriteHeader(http.StatusOK)
	_, _ = c.w.Write(data) // a reader that left is no fault of ours
}

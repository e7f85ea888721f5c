package api

import (
	"bytes"
	"embed"
	"html"
	"net/http"
	"strings"

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

// serveIndex is the one page at the root: what this is, where to read on, what to type first.
func serveIndex(c *call) error {
	data, err := pageFiles.ReadFile("page/index.html")
	if err != nil {
		return hob.Wrap("read the index page", err)
	}
	c.page("index.html", bytes.ReplaceAll(data, []byte("{version}"), []byte(html.EscapeString(c.s.Version))))
	return nil
}

func (c *call) page(name string, data []byte) {
	kind := "text/html; charset=utf-8"
	switch {
	case strings.HasSuffix(name, ".js"):
		kind = "text/javascript; charset=utf-8"
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

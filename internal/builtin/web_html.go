package builtin

import (
	"bytes"
	"context"
	"net/url"
	"slices"
	"strings"

	"codeberg.org/readeck/go-readability/v2"
	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/strikethrough"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"github.com/andybalholm/cascadia"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"hob"
)

const (
	// maxNodes is how many elements and texts a page may have.
	maxNodes = 100_000
	// maxLinks is how many links of a page are told.
	maxLinks = 2000
)

// readHTML makes the formats that were asked for of a page. The error is Invalid.
func readHTML(ctx context.Context, in *scrapeArgs, text string, at *url.URL, facts pageFacts) ([]member, error) {
	if err := checkSelectors(in.ExcludeTags); err != nil {
		return nil, err
	}
	if err := measureHTML(text); err != nil {
		return nil, err
	}
	doc, err := html.Parse(strings.NewReader(text))
	if err != nil {
		return nil, hob.Errorf(hob.Invalid, "the page is no usable HTML: it is nested too deeply") // the parser knows no other fault
	}
	if n := countNodes(doc); n > maxNodes {
		return nil, hob.Errorf(hob.Invalid, "the page has more than %d elements", maxNodes)
	}
	facts.read(doc)
	at = baseOf(doc, at)
	tidyHTML(doc, at)
	for _, selector := range in.excluded {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		removeAll(cascadia.QueryAll(doc, selector))
	}
	content := doc
	if in.mainOnly() {
		content = mainContent(doc, at)
	}
	var page []member
	if slices.Contains(in.Formats, "markdown") || in.IncludeImages {
		markdown, err := toMarkdown(ctx, content, at)
		if err != nil {
			return nil, err
		}
		if in.mainOnly() && facts.Title != "" && !strings.HasPrefix(markdown, "# ") {
			markdown = "# " + facts.Title + "\n\n" + markdown // which is no part of the main content
		}
		page = append(page, member{"markdown", encode(markdown)})
	}
	if slices.Contains(in.Formats, "html") {
		rendered, err := htmlBytes(func(b *bytes.Buffer) error { return html.Render(b, content) })
		if err != nil {
			return nil, hob.Errorf(hob.Invalid, "the page could not be made into HTML")
		}
		page = append(page, member{"html", encode(rendered)})
	}
	if slices.Contains(in.Formats, "links") {
		page = append(page, member{"links", encode(linksOf(doc))})
	}
	return append(page, member{"metadata", encode(facts)}), nil
}

// toMarkdown is a part of a page as Markdown.
func toMarkdown(ctx context.Context, content *html.Node, at *url.URL) (string, error) {
	conv := converter.NewConverter(converter.WithPlugins(
		base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(), table.NewTablePlugin(), strikethrough.NewStrikethroughPlugin(),
	))
	// The converter changes what it is given; html may be asked for, too.
	out, err := conv.ConvertNode(clone(content), converter.WithContext(ctx), converter.WithDomain(at.Scheme+"://"+at.Host))
	if err != nil {
		return "", hob.Errorf(hob.Invalid, "the page could not be made into Markdown")
	}
	return strings.TrimSpace(string(out)), nil
}

// mainContent is the part of a page that it is about. Where none stands out it is the body without its menus.
func mainContent(doc *html.Node, at *url.URL) *html.Node {
	parser := readability.NewParser()
	parser.DisableJSONLD = true
	article, err := parser.ParseDocument(clone(doc), at)
	if err == nil && article.Node != nil && strings.TrimSpace(textOf(article.Node)) != "" {
		return article.Node
	}
	rest := clone(doc)
	removeAll(find(rest, func(n *html.Node) bool {
		return slices.Contains([]atom.Atom{atom.Nav, atom.Header, atom.Footer, atom.Aside}, n.DataAtom)
	}))
	if strings.TrimSpace(textOf(rest)) == "" {
		return doc
	}
	return rest
}

// read takes the facts that a page tells of itself.
func (f *pageFacts) read(doc *html.Node) {
	for _, n := range find(doc, func(n *html.Node) bool {
		return n.DataAtom == atom.Title || n.DataAtom == atom.Meta || n.DataAtom == atom.Html
	}) {
		switch n.DataAtom {
		case atom.Html:
			f.Language, _ = cut(attr(n, "lang"), keptFact)
		case atom.Title:
			if f.Title == "" && n.Namespace == "" {
				f.Title, _ = cut(strings.Join(strings.Fields(textOf(n)), " "), maxHeaderShown)
			}
		default:
			name := strings.ToLower(attr(n, "name") + attr(n, "property"))
			if f.Description == "" && (name == "description" || name == "og:description") {
				f.Description, _ = cut(strings.TrimSpace(attr(n, "content")), maxHeaderShown)
			}
		}
	}
}

// baseOf is the address against which a page's links are read.
func baseOf(doc *html.Node, at *url.URL) *url.URL {
	for _, n := range find(doc, func(n *html.Node) bool { return n.DataAtom == atom.Base }) {
		if u, err := at.Parse(strings.TrimSpace(attr(n, "href"))); err == nil && isWeb(u) && u.Host != "" {
			return u
		}
	}
	return at
}

// tidyHTML takes out of a page what is no content, and makes its links absolute. Links that lead to no web page lose
// their address, so that no Markdown carries a script.
func tidyHTML(doc *html.Node, at *url.URL) {
	noContent := []atom.Atom{
		atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Iframe, atom.Frame, atom.Object, atom.Embed, atom.Svg, atom.Math,
		atom.Canvas, atom.Link, atom.Base, atom.Input, atom.Select, atom.Textarea, atom.Dialog,
	}
	removeAll(find(doc, func(n *html.Node) bool {
		return n.Type == html.CommentNode || n.Type == html.ElementNode && slices.Contains(noContent, n.DataAtom)
	}))
	for _, n := range find(doc, func(n *html.Node) bool { return n.Type == html.ElementNode }) {
		if n.DataAtom == atom.Img && attr(n, "src") == "" {
			setAttr(n, "src", attr(n, "data-src"))
		}
		kept := n.Attr[:0]
		for _, a := range n.Attr {
			switch name := strings.ToLower(a.Key); {
			case strings.HasPrefix(name, "on"), name == "style", name == "srcset", name == "data-srcset", name == "srcdoc":
				continue
			case name == "href" || name == "src":
				if a.Val = absolute(at, a.Val); a.Val == "" {
					continue
				}
			}
			kept = append(kept, a)
		}
		n.Attr = kept
		if n.DataAtom == atom.A && attr(n, "href") == "" {
			n.DataAtom, n.Data = atom.Span, "span" // or it would be written as a link to the site
		}
	}
	removeAll(find(doc, func(n *html.Node) bool { return n.DataAtom == atom.Img && attr(n, "src") == "" }))
}

// absolute is a link of a page as a whole address; "" for one that leads to no page, as javascript: and data: do.
func absolute(at *url.URL, link string) string {
	u, err := at.Parse(strings.TrimSpace(link))
	switch {
	case err != nil:
		return ""
	case u.Scheme == "mailto", u.Scheme == "tel":
		return u.String()
	case !isWeb(u) || u.Host == "":
		return ""
	}
	u.User = nil
	return u.String()
}

func isWeb(u *url.URL) bool { return u.Scheme == "http" || u.Scheme == "https" }

// linksOf lists the pages that a page links to, each once.
func linksOf(doc *html.Node) []string {
	links := []string{}
	seen := map[string]bool{}
	for _, n := range find(doc, func(n *html.Node) bool { return n.DataAtom == atom.A || n.DataAtom == atom.Area }) {
		link := attr(n, "href")
		if !strings.HasPrefix(link, "http") || seen[link] || len(links) == maxLinks {
			continue
		}
		seen[link] = true
		links = append(links, link)
	}
	return links
}

// countNodes counts a tree.
func countNodes(doc *html.Node) int {
	n := 0
	for range doc.Descendants() {
		n++
	}
	return n
}

// find lists the nodes of a tree that are wanted.
func find(doc *html.Node, wanted func(*html.Node) bool) []*html.Node {
	var found []*html.Node
	for n := range doc.Descendants() {
		if wanted(n) {
			found = append(found, n)
		}
	}
	return found
}

// removeAll takes nodes out of their tree.
func removeAll(nodes []*html.Node) {
	for _, n := range nodes {
		if n.Parent != nil {
			n.Parent.RemoveChild(n)
		}
	}
}

// clone copies a tree, whose depth the parser has bounded.
func clone(n *html.Node) *html.Node {
	c := &html.Node{Type: n.Type, DataAtom: n.DataAtom, Data: n.Data, Namespace: n.Namespace, Attr: slices.Clone(n.Attr)}
	for child := n.FirstChild; child != nil; child = child.NextSibling {
		c.AppendChild(clone(child))
	}
	return c
}

// textOf joins the texts of a tree.
func textOf(doc *html.Node) string {
	var b strings.Builder
	for n := range doc.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
		}
	}
	return b.String()
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name && a.Namespace == "" {
			return a.Val
		}
	}
	return ""
}

func setAttr(n *html.Node, name, value string) {
	for i := range n.Attr {
		if n.Attr[i].Key == name {
			n.Attr[i].Val = value
			return
		}
	}
	n.Attr = append(n.Attr, html.Attribute{Key: name, Val: value})
}

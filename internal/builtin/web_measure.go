package builtin

import (
	"hash/maphash"
	"io"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"hob"
)

const (
	// maxAttributes is how many attributes an element may have, maxAllAttributes how many those of a page may together.
	maxAttributes    = 500
	maxAllAttributes = 150_000
	// maxFormatting is how many different elements such as <b> may be open at once. Each is made anew wherever a block ends
	// around it, so that a short page could become millions of elements.
	maxFormatting = 50
)

// isFormatting says whether the parser makes an element anew in every block until it is closed.
func isFormatting(a atom.Atom) bool {
	return slices.Contains([]atom.Atom{
		atom.A, atom.B, atom.Big, atom.Code, atom.Em, atom.Font, atom.I, atom.Nobr, atom.S, atom.Small, atom.Strike, atom.Strong, atom.Tt, atom.U,
	}, a)
}

// isInline says whether the start of an element ends no other.
func isInline(a atom.Atom) bool {
	return slices.Contains([]atom.Atom{
		atom.Span, atom.Br, atom.Img, atom.Input, atom.Label, atom.Wbr, atom.Sub, atom.Sup, atom.Abbr, atom.Cite, atom.Time, atom.Svg,
	}, a)
}

// measureHTML refuses a page that would be too large a tree, without making one.
func measureHTML(text string) error {
	tokens := html.NewTokenizer(strings.NewReader(text))
	m := pageMeasure{seed: maphash.MakeSeed()}
	for {
		kind := tokens.Next()
		if kind == html.ErrorToken {
			if tokens.Err() == io.EOF { //nolint:errorlint // as the tokenizer's documentation has it
				return nil
			}
			return hob.Errorf(hob.Invalid, "the page is no usable HTML")
		}
		if m.nodes++; kind == html.StartTagToken || kind == html.SelfClosingTagToken || kind == html.EndTagToken {
			if err := m.tag(tokens, kind == html.EndTagToken); err != nil {
				return err
			}
		}
		if m.nodes > maxNodes {
			return hob.Errorf(hob.Invalid, "the page has more than %d elements", maxNodes)
		}
	}
}

// pageMeasure is what was counted of a page so far.
type pageMeasure struct {
	nodes, attributes int
	open              []formatting
	seed              maphash.Seed
}

// formatting is an element that is open; those with the same tag are taken together from the third on, as the parser does.
type formatting struct {
	name atom.Atom
	tag  uint64
}

func (m *pageMeasure) tag(tokens *html.Tokenizer, end bool) error {
	tag := maphash.Bytes(m.seed, tokens.Raw())
	raw, more := tokens.TagName()
	name := atom.Lookup(raw)
	n := 0
	for more {
		_, _, more = tokens.TagAttr()
		if n++; n > maxAttributes {
			return hob.Errorf(hob.Invalid, "the page has an element with more than %d attributes", maxAttributes)
		}
	}
	if m.attributes += n; m.attributes > maxAllAttributes {
		return hob.Errorf(hob.Invalid, "the page has more than %d attributes", maxAllAttributes)
	}
	switch {
	case isFormatting(name) && end:
		for i, f := range slices.Backward(m.open) {
			if f.name == name {
				m.open = slices.Delete(m.open, i, i+1)
				break
			}
		}
	case isFormatting(name):
		same := 0
		for _, f := range m.open {
			if f == (formatting{name, tag}) {
				same++
			}
		}
		const most = 3
		if same < most {
			m.open = append(m.open, formatting{name, tag})
		}
		if len(m.open) > maxFormatting {
			return hob.Errorf(hob.Invalid, "the page opens more than %d formatting elements without closing them", maxFormatting)
		}
	case end || !isInline(name):
		m.nodes += len(m.open)
	}
	return nil
}

// Parts of a selector: what lies in brackets or quotes, and what looks at an element's neighbours or at all that it contains.
const (
	selectorTexts  = `\[[^\]]*\]|"[^"]*"|'[^']*'`
	selectorCostly = `(?i):(nth-|has|contains|matches|[a-z-]*-child|[a-z-]*-of-type)|~`
)

// checkSelectors refuses those whose time grows with the square of a page.
func checkSelectors(selectors []string) error {
	texts, costly := regexp.MustCompile(selectorTexts), regexp.MustCompile(selectorCostly)
	for _, s := range selectors {
		if costly.MatchString(texts.ReplaceAllString(s, "")) {
			return hob.Errorf(hob.Invalid, "exclude_tags has %q: selectors by position or by content are not available; write one like nav, .advert or #footer", shorten(s))
		}
	}
	return nil
}

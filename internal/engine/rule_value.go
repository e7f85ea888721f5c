package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"hob"
)

// ruleField is a path into an input.
type ruleField struct {
	name  string
	parts []string
}

func newRuleField(name string) ruleField {
	return ruleField{name: name, parts: strings.Split(name, ".")}
}

// shown is the field's name for people.
func (f ruleField) shown() string { return short(f.name) }

// fieldText is what an input has at a field, each form made once.
type fieldText struct {
	looked bool
	why    string // it cannot be told
	raw    string
	forms  [2]struct { // as it is, and without case
		made bool
		text string
	}
}

// judging is one input while rules are judged for it.
type judging struct {
	fields []ruleField
	texts  []fieldText
	input  map[string]any
	why    string // the input cannot be read
	steps  int
	most   int
}

func newJudging(r *Rules, input json.RawMessage) *judging {
	j := &judging{fields: r.fields, texts: make([]fieldText, len(r.fields)), steps: len(input), most: r.most}
	d := json.NewDecoder(bytes.NewReader(input))
	d.UseNumber() // numbers stay as they were written
	if err := d.Decode(&j.input); err != nil || j.input == nil {
		j.why = "the input is no JSON object"
	}
	return j
}

// spend counts steps, and says so where there have been too many.
func (j *judging) spend(steps int) (why string) {
	if j.steps += steps; j.steps > j.most {
		j.steps = j.most + 1
		return "the rules of this list ask for more work than is allowed for an input of this size"
	}
	return ""
}

// tooLong says whether patterns do not look at a field that was looked at.
func (j *judging) tooLong(field int) bool {
	raw := j.texts[field].raw
	return len(raw) > hob.MaxMatchChars && utf8.RuneCountInString(raw) > hob.MaxMatchChars
}

// text is a field of the input in the form that is compared.
func (j *judging) text(field int, fold bool) (text, why string) {
	t := &j.texts[field]
	if why := j.spend(0); why != "" { // before anything is made of a value
		return "", why
	}
	if !t.looked {
		t.looked = true
		t.raw, t.why = j.find(j.fields[field])
	}
	if t.why != "" {
		return "", t.why
	}
	form := &t.forms[0]
	if fold {
		form = &t.forms[1]
	}
	if !form.made {
		steps := len(t.raw)
		if !isASCII(t.raw) {
			steps *= ruleFoldedWork
		}
		if why := j.spend(steps); why != "" {
			return "", why
		}
		form.made, form.text = true, comparableText(t.raw, fold)
	}
	return form.text, ""
}

// find follows a field into the input; what is not there is empty text. A name with dots may be the name of an argument as
// well as a path: where the input has both, whoever wrote the arguments could hide one behind the other, so that neither
// counts.
func (j *judging) find(f ruleField) (text, why string) {
	if j.why != "" {
		return "", j.why
	}
	at, found := walk(j.input, f.parts)
	if whole, there := j.input[f.name]; there && len(f.parts) > 1 {
		if found {
			return "", fmt.Sprintf("the input has both an argument of the name %s and something at that path", f.shown())
		}
		at, found = whole, true
	}
	if !found {
		return "", ""
	}
	if s, ok := at.(string); ok {
		return s, ""
	}
	text = textOf(at)
	return text, j.spend(ruleRenderWork * len(text))
}

// walk follows names of members and numbers of elements, from 0.
func walk(at any, parts []string) (any, bool) {
	for _, p := range parts {
		switch v := at.(type) {
		case map[string]any:
			next, ok := v[p]
			if !ok {
				return nil, false
			}
			at = next
		case []any:
			i, err := strconv.ParseUint(p, 10, 31)
			if err != nil || i >= uint64(len(v)) || strconv.FormatUint(i, 10) != p {
				return nil, false
			}
			at = v[i]
		default:
			return nil, false
		}
	}
	return at, true
}

// textOf is a value as rules compare it: a string's own text, of all else its canonical JSON.
func textOf(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // of decoded JSON: cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

// comparableText is the form in which texts are compared: NFC, so that one character is one however it was composed, and,
// without case, folded as Unicode folds it.
func comparableText(s string, fold bool) string {
	switch {
	case isASCII(s) && fold:
		return strings.ToLower(s)
	case isASCII(s):
		return s
	case fold:
		return norm.NFC.String(cases.Fold().String(norm.NFD.String(s)))
	}
	return norm.NFC.String(s)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

package builtin

import (
	"os"
	"slices"
	"strings"
	"testing"

	"hob"
)

// TestDocs_NameTheKeysOfEveryTool holds the table of docs/tools.md against what the tools read: each key that is no
// argument stands in its tool's row, and no other.
func TestDocs_NameTheKeysOfEveryTool(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| tool | keys beside its arguments |")
	rows := map[string][]string{} // keys by what stands in the first column
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if strings.TrimSpace(line) == "" && len(rows) > 0 {
			break
		}
		if len(cells) != 4 {
			continue
		}
		keys, _, _ := strings.Cut(cells[2], "(") // an explanation follows
		for _, rest := range strings.SplitAfter(cells[2], ")")[1:] {
			keys += rest
		}
		for _, name := range quotedIn(cells[1]) {
			rows[name] = quotedIn(keys)
		}
	}
	want := map[string][]string{"http": customSource(&hob.Tool{Type: hob.HTTPTool}).keys} // the row of custom tools
	for name, b := range registry {
		want[name] = b.keys
	}
	for name, keys := range want {
		keys = slices.DeleteFunc(slices.Sorted(slices.Values(keys)), func(k string) bool { return k == rulesKey })
		if got := slices.Sorted(slices.Values(rows[name])); !slices.Equal(got, keys) {
			t.Errorf("docs/tools.md has the keys %q for %s, want %q", got, name, keys)
		}
	}
}

// quotedIn are the words in backquotes.
func quotedIn(text string) []string {
	var words []string
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			words = append(words, part)
		}
	}
	return words
}

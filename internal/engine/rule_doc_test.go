package engine_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The examples of the page about hooks do what it says of them.
func TestRules_ExamplesOfThePage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "hooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "| condition | holds for | does not hold for |\n|---|---|---|\n")
	if !ok {
		t.Fatal("the page has no table of examples")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	cells := regexp.MustCompile("`([^`]+)`")
	rows := 0
	for line := range strings.Lines(table) {
		found := cells.FindAllStringSubmatch(line, -1)
		if len(found) != 3 {
			t.Fatalf("a row without three examples: %s", line)
		}
		condition := strings.ReplaceAll(found[0][1], `\|`, "|")
		if held, why := judgeRule(t, condition, false, found[1][1]); !held || why != "" {
			t.Errorf("%s does not hold for %s; %s", condition, found[1][1], why)
		}
		if held, why := judgeRule(t, condition, false, found[2][1]); held || why != "" {
			t.Errorf("%s holds for %s; %s", condition, found[2][1], why)
		}
		rows++
	}
	if rows < 10 {
		t.Errorf("%d examples", rows)
	}
}

package provider_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tiktoken-go/tokenizer/codec"

	"hob"
)

func counter(t testing.TB, model string) func(string) int {
	t.Helper()
	m, err := registry("OPENAI_API_KEY", "k").Open(t.Context(), hob.DefaultWorkspace, "openai/"+model)
	if err != nil {
		t.Fatal(err)
	}
	return m.Count
}

func TestCount_IsOfTheModelsOwnTokenizer(t *testing.T) {
	t.Parallel()
	const text = "港务办公室早上七点开门" // the newer vocabulary has more words of it
	old, err := codec.NewCl100kBase().Count(text)
	if err != nil {
		t.Fatal(err)
	}
	current, err := codec.NewO200kBase().Count(text)
	if err != nil || old == current {
		t.Fatalf("the text tells nothing: %d and %d tokens, %v", old, current, err)
	}
	for model, want := range map[string]int{
		"gpt-4": old, "gpt-4-turbo": old, "gpt-3.5-turbo-0125": old,
		"gpt-4o": current, "GPT-4o-mini": current, "gpt-4.1-nano": current, "gpt-4.5-preview": current, "gpt-5": current,
		"gpt-5.4-mini": current, "o1": current, "o3-mini": current, "o4-mini": current, "org/gpt-oss-120b": current,
		"chatgpt-4o-latest": current,
	} {
		count := counter(t, model)
		if count == nil {
			t.Errorf("%s is not counted", model)
		} else if got := count(text); got != want {
			t.Errorf("%s counts %d, want %d", model, got, want)
		}
	}
	for _, model := range []string{"claude-sonnet-4-5", "llama-3.3-70b", "o1000", "o3x", "opus", "gemini-2.5-pro", "o"} {
		if counter(t, model) != nil {
			t.Errorf("%s has a counter", model)
		}
	}
	if got := counter(t, "gpt-4o")(""); got != 0 {
		t.Errorf("no text is %d tokens", got)
	}
}

// TestCount_PiecesChangeNothing compares with the tokenizer run over the whole text.
func TestCount_PiecesChangeNothing(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("scan.go")
	if err != nil {
		t.Fatal(err)
	}
	o200k := codec.NewO200kBase()
	count := counter(t, "gpt-4o")
	for name, text := range map[string]string{
		"code":     strings.Repeat(string(source), 12),
		"prose":    strings.Repeat("The quay's ledger isn't WET, they've said; 12,345 crates (of \"rope\")!  Two   spaces.\n\n", 900),
		"lines":    strings.Repeat("a;\n/path\n\n  b;\r\n\t- c\n", 4000),
		"russian":  strings.Repeat("Портовая контора открывается в семь часов.\n", 1500),
		"odd":      strings.Repeat("x\u00a0 y\u2003 z\u3000 w\u2028 v 1 2\n3\n", 4000),
		"blank":    strings.Repeat("x"+strings.Repeat("  \n", 60)+strings.Repeat(" ", 900)+"y"+strings.Repeat("\n", 300), 40),
		"accented": strings.Repeat("übergrößenträger ", 3000),
	} {
		want, err := o200k.Count(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := count(text); got != want {
			t.Errorf("%s: %d tokens, want %d", name, got, want)
		}
	}
}

// TestCount_HostileTextTakesLinearTime counts text without a place to cut, of each kind that is hard for something. Prose of
// the same length, counted by the same machine in the same state, is the measure.
func TestCount_HostileTextTakesLinearTime(t *testing.T) {
	t.Parallel()
	const size, times, slack = 1 << 17, 50, 200 * time.Millisecond // blank lines unguarded come to 100 times, the others to 10
	count := counter(t, "gpt-4o")
	timed := func(unit string) (n int, took time.Duration) {
		text := strings.Repeat(unit, size/len(unit))
		began := time.Now()
		n = count(text)
		return n, time.Since(began)
	}
	timed("load")
	_, prose := timed("The harbour office opens at seven, long before the first ferry leaves.\n")
	for name, unit := range map[string]string{
		"one word": "a", "capitals": "A", "mixed": "aA", "spaces": " ", "lines": "\n", "lines and spaces": " \n", "digits": "7",
		"blank lines": "\u00a0\t\r\n", "wide blank lines": strings.Repeat(" ", 200) + "\n",
		"punctuation": "!", "han": "港", "invalid": "\xff", "halves": "\xe6\xb8", "marks": "\u0301", "apostrophes": "'s'S",
	} {
		n, took := timed(unit)
		if n < size/500 || n > size {
			t.Errorf("%s: %d tokens of %d bytes", name, n, size)
		}
		if took > times*prose+slack {
			t.Errorf("%s took %s, prose %s", name, took, prose)
		}
	}
}

func TestCount_IsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	const text = "The harbour office opens at seven."
	want := counter(t, "gpt-5")(text)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if got := counter(t, "gpt-5")(text); got != want {
				t.Errorf("%d tokens, want %d", got, want)
			}
		})
	}
	wg.Wait()
}

func BenchmarkCount(b *testing.B) {
	count := counter(b, "gpt-4o")
	text := strings.Repeat("The harbour office opens at seven, long before the first ferry leaves.\n", 100)
	count(text)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		count(text)
	}
}

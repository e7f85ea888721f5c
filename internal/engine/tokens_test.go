package engine_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hob"
	"hob/internal/engine"
	"hob/internal/provider"
)

// corpora are texts of every kind that models get to read, by name.
func corpora(t testing.TB) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/tokens/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no texts: %v", err)
	}
	out := map[string]string{}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(name), ".txt")] = string(b)
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same texts in every run
	var csv, code, hexes, uuids strings.Builder
	csv.WriteString("id,date,amount,rate,balance\n")
	for i := range 200 {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
		fmt.Fprintf(&csv, "%d,2026-%02d-%02d,%.2f,%.4f,%d\n", 10_000+i, 1+random.IntN(12), 1+random.IntN(28),
			random.Float64()*1000, random.Float64(), random.IntN(1_000_000))
		code.WriteString(base64.StdEncoding.EncodeToString(sum[:30]))
		hexes.WriteString(hex.EncodeToString(sum[:]) + "\n")
		fmt.Fprintf(&uuids, "%x-%x-%x-%x-%x\n", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	}
	out["csv"], out["base64"], out["hex"], out["uuid"] = csv.String(), code.String(), hexes.String(), uuids.String()
	out["emoji"] = strings.Repeat("Great 🎉🎉 see you at the harbour ⛴️ 👍🏽 🙂 ❤️🔥 🇩🇪 ✅ 🚀\n", 20)
	out["indented"] = strings.Repeat("\n\n        - item\n            nested:   true\n\t\t\tdone\n", 40)
	out["table"] = strings.Repeat("┌──────┬──────┐\n│ a    │ b    │\n└──────┴──────┘\n", 30)
	out["log"] = strings.Repeat("time=2026-03-14T09:26:53.589Z level=INFO msg=\"run finished\" run=01hv3z9k2m8x4n7q duration=1.204s tokens=1843\n", 30)
	out["url"] = strings.Repeat("https://example.com/api/v1/agents/01hv3z9k/runs?limit=50&status=completed#events\n", 30)
	return out
}

func exactCounter(t testing.TB) func(string) int {
	t.Helper()
	r := provider.New(provider.Config{OpenAI: provider.Endpoint{Key: "k"}, Clients: noClients{}})
	m, err := r.Open(t.Context(), hob.DefaultWorkspace, "openai/gpt-4o")
	if err != nil {
		t.Fatal(err)
	}
	if m.Count == nil {
		t.Fatal("the model has no counter")
	}
	return m.Count
}

// noClients is for models that are never called.
type noClients struct{}

func (noClients) OperatorClient(string) (*http.Client, error) { return nil, errNoClients }
func (noClients) UserClient(string) (*http.Client, error)     { return nil, errNoClients }

var errNoClients = errors.New("no model is called here")

// TestTokens_EstimateIsNearTheCount holds the estimate to what it promises, and each kind of text for itself: an error
// in the one direction cuts conversations that fit, in the other it lets them grow beyond the window.
func TestTokens_EstimateIsNearTheCount(t *testing.T) {
	t.Parallel()
	const least, most = 0.85, 1.7
	exact := exactCounter(t)
	for name, text := range corpora(t) {
		n, guess := exact(text), engine.EstimateTokens(text)
		ratio := float64(guess) / float64(n)
		t.Logf("%-9s %6d bytes, %5d tokens, guessed %5d: %.2f", name, len(text), n, guess, ratio)
		if ratio < least || ratio > most {
			t.Errorf("%s: the guess is %.2f of the count", name, ratio)
		}
	}
}

func TestTokens_EstimateIsSane(t *testing.T) {
	t.Parallel()
	if n := engine.EstimateTokens(""); n != 0 {
		t.Errorf("no text is %d tokens", n)
	}
	all := make([]byte, 0, 256*256*2)
	for a := range 256 {
		for b := range 256 {
			pair := string([]byte{byte(a), byte(b)})
			all = append(all, pair...)
			if n := engine.EstimateTokens(pair); n < 1 || n > 4 {
				t.Errorf("%q is %d tokens", pair, n)
			}
		}
	}
	if n := engine.EstimateTokens(string(all)); n < len(all)/8 || n > 2*len(all) {
		t.Errorf("%d bytes of everything are %d tokens", len(all), n)
	}
	// The parts together never cost much less than the whole: a conversation is estimated message by message.
	for name, text := range corpora(t) {
		half := len(text) / 2
		whole, parts := engine.EstimateTokens(text), engine.EstimateTokens(text[:half])+engine.EstimateTokens(text[half:])
		if d := parts - whole; d < -2 || d > 3 {
			t.Errorf("%s: %d tokens in one, %d in two", name, whole, parts)
		}
	}
}

func TestTokens_EstimateAllocatesNothing(t *testing.T) {
	text := corpora(t)["english"]
	if n := testing.AllocsPerRun(100, func() { engine.EstimateTokens(text) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkTokens_Estimate(b *testing.B) {
	for _, name := range []string{"english", "json", "chinese"} {
		text := corpora(b)[name]
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				engine.EstimateTokens(text)
			}
		})
	}
}

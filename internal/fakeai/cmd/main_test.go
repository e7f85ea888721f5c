package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestRun_ServesUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-tokens", "7"},
		{"-tokens", "7", "-mode", "tools", "-steps", "1"},
		{"-tokens", "7", "-strict"},
		{"-tokens", "0", "-strict", "-window", "4"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out, in := io.Pipe()
		code := make(chan int, 1)
		go func() { code <- run(ctx, args, in, io.Discard) }()
		address, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSpace(address)+"/chat/completions", strings.NewReader(
			`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		transport := &http.Transport{}
		res, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		small := slices.Contains(args, "-window")
		if err != nil || small != strings.Contains(string(body), "context_length_exceeded") || !small && strings.Count(string(body), `"content":" tok`) != 7 {
			t.Errorf("%v: %v %s", args, err, body)
		}
		_ = res.Body.Close()
		transport.CloseIdleConnections()
		cancel()
		if c := <-code; c != 0 {
			t.Errorf("%v: exit code %d", args, c)
		}
	}
}

func TestRun_RefusesWrongFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-mode", "images"}, {"-no-such-flag"}} {
		var stderr bytes.Buffer
		if code := run(t.Context(), args, io.Discard, &stderr); code != 2 || stderr.Len() == 0 {
			t.Errorf("%v: exit code %d, %q", args, code, stderr.String())
		}
	}
	if code := run(t.Context(), []string{"-addr", "256.0.0.1:1"}, io.Discard, io.Discard); code != 1 {
		t.Errorf("an address that cannot be: exit code %d", code)
	}
}

package sandbox

import "testing"

func TestClean_LeavesTextWithoutCommandsToTheTerminal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\tb\r\nc\n": "a\tb\nc\n", "10%\r20%": "10%\n20%", "\x1b[31mred\x1b[0m": "red", "\x1b]0;title\x07x": "x",
		"\x1b]8;;http://x\x1b\\link": "link", "a\x00b\x7f\u009b": "ab", "\xff\xfeé": "\ufffdé", "a\u202eb": "ab", "\x1b": "", "\x1b[": "",
		"\x1bc!": "!", "日本": "日本",
	} {
		if got := clean([]byte(in)); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

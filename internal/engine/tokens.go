package engine

// estimateTokens guesses how many tokens a model makes of a text, for models whose tokenizer is not known. It never
// allocates and reads the text once. The guess is measured against OpenAI's o200k_base: for prose in the larger
// languages, code, JSON and numbers it is between nine tenths and one and a half times the exact count, and rather too
// high than too low, as other vendors' tokenizers make more tokens of the same text.
//
// Tokenizers split a text where the kind of character changes and then join what is frequent. So the guess adds up what
// each pair of neighbouring bytes costs by their kinds: a letter behind a space begins a token, a letter behind a letter
// continues one most of the time, a digit behind a digit costs a third, as digits come in threes.
func estimateTokens(s string) int {
	if s == "" {
		return 0
	}
	var sum uint64
	before := kindSpace
	for i := range len(s) {
		kind := byteKinds[s[i]]
		sum += uint64(pairCosts[before&15][kind&15])
		before = kind
	}
	return int((sum + costOfToken - 1) / costOfToken)
}

// costOfToken is what one token costs in pairCosts.
const costOfToken = 100

// byteKind sorts bytes. Characters beyond ASCII are sorted by the first byte of their UTF-8 form, which tells the script
// well enough.
type byteKind uint8

const (
	kindSpace  byteKind = iota
	kindLine            // ends of lines and other control characters
	kindLower           // a to z
	kindUpper           // A to Z
	kindDigit           // 0 to 9
	kindPunct           // the rest of ASCII
	kindRest            // second and later bytes of a character
	kindLatin           // Latin letters with marks, U+0080 to U+027F
	kindGreek           // Greek, Cyrillic and Armenian, U+0280 to U+057F
	kindArabic          // Hebrew, Arabic and their neighbours, U+0580 to U+07FF
	kindIndic           // E0: scripts of India, Thai, Lao
	kindSymbol          // E1 and E2: rarer scripts, Vietnamese vowels; punctuation, arrows, mathematics, boxes
	kindKana            // E3: kana and the punctuation of Chinese and Japanese
	kindHan             // E4 to E9
	kindHangul          // EA to ED
	kindEmoji           // EE and above: full-width forms, emoji, rare Han; and what is no UTF-8
)

// byteKinds is the kind of each byte.
var byteKinds = func() (kinds [256]byteKind) { //nolint:gochecknoglobals // a table that nothing writes to
	mark := func(from, to int, kind byteKind) {
		for b := from; b <= to; b++ {
			kinds[b] = kind
		}
	}
	mark(0, ' ', kindLine)
	mark(' ', ' ', kindSpace)
	mark('\t', '\t', kindSpace)
	mark('!', 0x7F, kindPunct)
	mark('a', 'z', kindLower)
	mark('A', 'Z', kindUpper)
	mark('0', '9', kindDigit)
	mark(0x80, 0xBF, kindRest)
	mark(0xC0, 0xC9, kindLatin)
	mark(0xCA, 0xD5, kindGreek)
	mark(0xD6, 0xDF, kindArabic)
	mark(0xE0, 0xE0, kindIndic)
	mark(0xE1, 0xE2, kindSymbol)
	mark(0xE3, 0xE3, kindKana)
	mark(0xE4, 0xE9, kindHan)
	mark(0xEA, 0xED, kindHangul)
	mark(0xEE, 0xFF, kindEmoji)
	return kinds
}()

// pairCosts is what a byte costs behind another, in hundredths of a token: pairCosts[before][byte]. The rows behind
// kindRest are reached by broken UTF-8 only.
var pairCosts = [16][16]uint8{ //nolint:gochecknoglobals // a table that nothing writes to
	//           spc lin low upp dig pun rst lat grk ara ind sym kan han hgl emo
	kindSpace:  {3, 30, 62, 62, 100, 80, 30, 90, 70, 75, 60, 115, 90, 90, 90, 180},
	kindLine:   {62, 25, 75, 80, 85, 80, 30, 90, 80, 80, 60, 115, 90, 90, 90, 180},
	kindLower:  {0, 98, 17, 100, 98, 78, 30, 55, 80, 80, 80, 115, 80, 85, 80, 180},
	kindUpper:  {0, 90, 46, 46, 98, 75, 30, 60, 80, 80, 80, 115, 80, 85, 80, 180},
	kindDigit:  {0, 95, 88, 98, 42, 85, 30, 60, 80, 80, 80, 115, 80, 85, 80, 180},
	kindPunct:  {20, 38, 72, 72, 80, 44, 30, 80, 80, 80, 80, 115, 80, 85, 80, 180},
	kindRest:   {0, 72, 34, 65, 80, 80, 0, 55, 26, 40, 36, 105, 82, 85, 76, 180},
	kindLatin:  {0, 72, 34, 65, 80, 80, 0, 55, 26, 40, 36, 105, 82, 85, 76, 180},
	kindGreek:  {0, 72, 34, 65, 80, 80, 0, 55, 26, 40, 36, 105, 82, 85, 76, 180},
	kindArabic: {0, 72, 34, 65, 80, 80, 0, 55, 26, 40, 36, 105, 82, 85, 76, 180},
	kindIndic:  {0, 72, 34, 65, 80, 80, 0, 55, 26, 40, 36, 105, 82, 85, 76, 180},
	kindSymbol: {0, 72, 34, 65, 80, 80, 0, 55, 26, 40, 36, 105, 82, 85, 76, 180},
	kindKana:   {0, 72, 34, 65, 80, 80, 0, 55, 26, 40, 36, 105, 82, 85, 76, 180},
	kindHan:    {0, 72, 34, 65, 80, 80, 0, 55, 26, 40, 36, 105, 82, 85, 76, 180},
	kindHangul: {0, 72, 34, 65, 80, 80, 0, 55, 26, 40, 36, 105, 82, 85, 76, 180},
	kindEmoji:  {0, 72, 34, 65, 80, 80, 0, 55, 26, 40, 36, 105, 82, 85, 76, 180},
}

package egress

import (
	"errors"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const (
	maxNameBytes  = 253 // of a host name, RFC 1035
	maxLabelBytes = 63  // of one label
)

// canonicalName gives the form in which host names are compared and resolved:
// IDNA-mapped, lower case, without the final dot. Spellings that some resolver
// might take for an IPv4 address (2130706433, 0x7f.1, 127.1) are errors, never
// names: two readers would disagree about where they lead.
func canonicalName(s string) (string, error) {
	s = strings.TrimSuffix(s, ".")
	if s == "" {
		return "", errors.New("host is empty")
	}
	if !isLowerASCII(s) {
		mapped, err := mapName(s)
		if err != nil {
			return "", err
		}
		s = mapped
	}
	if len(s) > maxNameBytes {
		return "", errors.New("host name is too long")
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if err := checkLabel(label); err != nil {
			return "", err
		}
		last = label
	}
	if looksNumeric(last) {
		return "", errors.New("host is an unusual spelling of an IPv4 address; use four decimal numbers")
	}
	return s, nil
}

func checkLabel(label string) error {
	switch {
	case label == "":
		return errors.New("host name has an empty label")
	case len(label) > maxLabelBytes:
		return errors.New("host name has a label of more than 63 characters")
	case label[0] == '-' || label[len(label)-1] == '-':
		return errors.New("host name has a label that begins or ends with a hyphen")
	}
	for i := range len(label) {
		c := label[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return errors.New("host name has a character that is not permitted")
		}
	}
	return nil
}

// looksNumeric tells whether a last label makes the host an IPv4 address in
// the eyes of lenient parsers: all digits, or hexadecimal with 0x.
func looksNumeric(label string) bool {
	if rest, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func isLowerASCII(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return true
}

// mapName lowers a name and turns its international labels into punycode. The
// mapping is the core of UTS 46 (compatibility normal form, lower case); what
// it would silently drop or turn into a dot or a digit is refused instead, as
// such names only serve to hide where they lead.
func mapName(s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", errors.New("host name is not valid UTF-8")
	}
	labels := strings.Split(s, ".")
	for i, label := range labels {
		if !hasNonASCII(label) {
			labels[i] = strings.ToLower(label)
			continue
		}
		mapped := norm.NFKC.String(strings.ToLower(norm.NFKC.String(label)))
		if !hasNonASCII(mapped) {
			return "", errors.New("host name uses look-alike characters")
		}
		for j, r := range mapped {
			ok := r < utf8.RuneSelf || unicode.IsLetter(r) || unicode.Is(unicode.Nd, r) || j > 0 && unicode.IsMark(r)
			if !ok {
				return "", errors.New("host name has a character that is not permitted")
			}
		}
		labels[i] = "xn--" + punycode(mapped)
	}
	return strings.Join(labels, "."), nil
}

func hasNonASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return true
		}
	}
	return false
}

// The parameters of punycode, RFC 3492, section 5.
const (
	punyBase, punyMin, punyMax = 36, 1, 26
	punySkew, punyDamp         = 38, 700
	punyFirstBias              = 72
)

// punycode encodes one label as RFC 3492 says. The loop is quadratic in the
// label's length, which maxURLBytes bounds; what exceeds 63 bytes is refused
// by the caller.
func punycode(label string) string {
	runes := []rune(label)
	if len(runes) > maxLabelBytes {
		// Every rune costs a byte or more: too long already, keep it so.
		return strings.Repeat("x", maxLabelBytes+1)
	}
	var out []byte
	for _, r := range runes {
		if r < utf8.RuneSelf {
			out = append(out, byte(r))
		}
	}
	basic := len(out)
	done := basic
	if basic > 0 {
		out = append(out, '-')
	}
	next, delta, bias := rune(utf8.RuneSelf), 0, punyFirstBias
	for done < len(runes) {
		low := rune(unicode.MaxRune)
		for _, r := range runes {
			if r >= next && r < low {
				low = r
			}
		}
		delta += int(low-next) * (done + 1)
		next = low
		for _, r := range runes {
			if r < next {
				delta++
			}
			if r != next {
				continue
			}
			q := delta
			for k := punyBase; ; k += punyBase {
				t := min(max(k-bias, punyMin), punyMax)
				if q < t {
					break
				}
				out = append(out, punyDigit(t+(q-t)%(punyBase-t)))
				q = (q - t) / (punyBase - t)
			}
			out = append(out, punyDigit(q))
			bias = punyBias(delta, done+1, done == basic)
			delta = 0
			done++
		}
		delta++
		next++
	}
	return string(out)
}

// punyBias adapts the bias to the size of the last step (section 6.1).
func punyBias(delta, points int, first bool) int {
	if first {
		delta /= punyDamp
	} else {
		delta /= 2
	}
	delta += delta / points
	k := 0
	for ; delta > (punyBase-punyMin)*punyMax/2; k += punyBase {
		delta /= punyBase - punyMin
	}
	return k + (punyBase-punyMin+1)*delta/(delta+punySkew)
}

func punyDigit(d int) byte {
	if d < 26 {
		return byte('a' + d)
	}
	return byte('0' + d - 26)
}

// canonicalHost reads the host of a URL: a name, an IPv4 address in four
// decimal numbers, or an IPv6 address (brackets already removed). IPv4-mapped
// IPv6 becomes IPv4.
func canonicalHost(s string, bracketed bool) (string, netip.Addr, error) {
	if bracketed {
		a, err := netip.ParseAddr(s)
		if err != nil || !a.Is6() {
			return "", netip.Addr{}, errors.New("host in brackets is not an IPv6 address")
		}
		if a.Zone() != "" {
			return "", netip.Addr{}, errors.New("addresses with a zone are not permitted")
		}
		a = a.Unmap()
		return a.String(), a, nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		return a.String(), a, nil
	}
	name, err := canonicalName(s)
	return name, netip.Addr{}, err
}

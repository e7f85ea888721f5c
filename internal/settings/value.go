package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"hob"
)

// MaxText is the longest text a setting may have, in bytes.
const MaxText = 64 << 10

// maxExact is the greatest whole number that a JSON number carries exactly everywhere.
const maxExact = 1 << 53

// accept turns what a client sent, text, a number, true or false, into a value's text form. The error's text is for the
// client.
func (k *key) accept(raw json.RawMessage) (string, error) {
	text := strings.TrimSpace(string(raw))
	switch {
	case k.JSON && strings.HasPrefix(text, "{"):
		return k.canonical(text)
	case text == "", text == "null", text[0] == '{', text[0] == '[':
		return "", k.invalid(text)
	case text[0] == '"':
		if err := json.Unmarshal(raw, &text); err != nil {
			return "", k.invalid(text)
		}
	}
	if k.Secret && strings.HasPrefix(text, hob.Mask) {
		return text, nil // what it stands for was checked when it came
	}
	return k.canonical(text)
}

// canonical is the one text form of a value, or what is wrong with it.
func (k *key) canonical(text string) (string, error) {
	text = strings.TrimSpace(text)
	switch k.Type {
	case hob.IntSetting, hob.FloatSetting:
		n, form, ok := parse(k.Type, text)
		if !ok {
			return "", k.invalid(text)
		}
		if k.Min != nil && n < *k.Min {
			return "", errors.New("Value must be >= " + plain(*k.Min))
		}
		if k.Max != nil && n > *k.Max {
			return "", errors.New("Value must be <= " + plain(*k.Max))
		}
		text = form
	case hob.BoolSetting:
		switch strings.ToLower(text) {
		case "true", "1", "yes":
			text = "true"
		case "false", "0", "no":
			text = "false"
		default:
			return "", k.invalid(text)
		}
	case hob.StringSetting:
		most := k.MaxBytes
		if most == 0 {
			most = MaxText
		}
		if len(text) > most {
			return "", fmt.Errorf("Value must be at most %d bytes", most)
		}
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return "", k.invalid(text)
		}
		if k.Secret && strings.ContainsFunc(text, unicode.IsControl) {
			return "", errors.New("Value must have no line breaks and no other control characters")
		}
		if k.JSON && text != "" {
			form, err := compact(text)
			if err != nil {
				return "", err
			}
			text = form
		}
	}
	if k.Choices != nil && !slices.Contains(k.Choices, text) {
		return "", errors.New("Value must be one of: " + strings.Join(k.Choices, ", "))
	}
	if k.check != nil && text != "" {
		if err := k.check(text); err != nil {
			return "", errors.New(told(err))
		}
	}
	return text, nil
}

// compact is a JSON object without blanks, or where it is none.
func compact(text string) (string, error) {
	var raw json.RawMessage
	err := json.Unmarshal([]byte(text), &raw) // which tells the place of a fault, as Compact does not
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		at := min(int(syntax.Offset), len(text))
		before := text[:max(at-1, 0)]
		line := strings.Count(before, "\n") + 1
		column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
		return "", fmt.Errorf("Value must be a JSON object: line %d, column %d: %w", line, column, err)
	case err != nil:
		return "", err
	case raw[0] != '{':
		return "", errors.New("Value must be a JSON object")
	}
	var form bytes.Buffer
	if err := json.Compact(&form, raw); err != nil {
		return "", err
	}
	return form.String(), nil
}

// parse reads a number and gives its plain form.
func parse(t hob.SettingType, text string) (n float64, form string, ok bool) {
	if t == hob.IntSetting {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil && i >= -maxExact && i <= maxExact {
			return float64(i), strconv.FormatInt(i, 10), true
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(n) || math.IsInf(n, 0):
		return 0, "", false
	case t == hob.IntSetting && (n != math.Trunc(n) || math.Abs(n) > maxExact):
		return 0, "", false
	case t == hob.IntSetting:
		return n, strconv.FormatInt(int64(n), 10), true
	}
	return n, plain(n), true
}

// plain writes a number without an exponent where it can.
func plain(n float64) string {
	if math.Abs(n) < 1e15 {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}

// invalid says that a value is not of the key's type. It shows no secret.
func (k *key) invalid(text string) error {
	if k.Secret {
		return fmt.Errorf("Invalid %s value", k.Type) //nolint:staticcheck // a client's sentence
	}
	return fmt.Errorf("Invalid %s value: %s", k.Type, clip(text)) //nolint:staticcheck // a client's sentence
}

// told is the text of an error that a client may see.
func told(err error) string {
	var e *hob.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

// typed is a value in JSON's types.
func (k *key) typed(text string) any {
	switch k.Type {
	case hob.IntSetting:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	case hob.FloatSetting:
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
	case hob.BoolSetting:
		return text == "true"
	case hob.StringSetting:
	}
	return text
}

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/BurntSushi/toml"

	"hob"
)

// readFile reads hob.toml into values by option key. A file that is not there is empty; a key that no option has is an
// error, and so is one that is written twice in two spellings.
func readFile(path string, table []option) (map[string]string, error) {
	b, err := readLimited(path, MaxFileSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no file: no values
	}
	if err != nil {
		return nil, hob.Errorf(hob.Invalid, "configuration file: %s", err.Error())
	}
	var raw map[string]any
	if err := toml.Unmarshal(b, &raw); err != nil {
		return nil, hob.Errorf(hob.Invalid, "%s: %s", path, err.Error())
	}
	known := map[string]option{}
	for _, o := range table {
		known[o.key()] = o
	}
	values := map[string]string{}
	var wrong []error
	for name, v := range raw {
		key := strings.ReplaceAll(name, "-", "_")
		text, err := fileValue(v)
		_, twice := values[key]
		switch o, ok := known[key]; {
		case !ok:
			err = errors.New("no option has this key; hob help serve lists them")
		case o.flag == "data":
			err = errors.New("the file lies in the data folder, so it cannot move it; use --data or HOB_DATA")
		case twice:
			err = errors.New("the key stands twice, once with - and once with _")
		}
		if err != nil {
			wrong = append(wrong, hob.Errorf(hob.Invalid, "%s: %s: %s", path, name, err.Error()).With("key", name))
			continue
		}
		values[key] = text
	}
	return values, errors.Join(wrong...)
}

// fileValue brings a TOML value to the text that a flag would have: lists become comma lists.
func fileValue(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool, int64, float64:
		return fmt.Sprint(v), nil
	case []any:
		items := make([]string, len(v))
		for i, e := range v {
			s, ok := e.(string)
			if !ok {
				return "", errors.New("the items of a list must be text")
			}
			items[i] = s
		}
		return strings.Join(items, ","), nil
	}
	return "", errors.New("must be text, a number, true, false or a list of text")
}

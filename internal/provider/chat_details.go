package provider

import (
	"encoding/json"
)

// reasoningDetails gathers OpenRouter's reasoning_details: a list whose entries come in pieces and which is sent back
// whole with the message, so that the model can go on thinking where it left off.
type reasoningDetails struct {
	entries []*reasoningDetail
	size    int
}

type reasoningDetail struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text,omitempty"`
	Summary   *string         `json:"summary,omitempty"`
	Data      *string         `json:"data,omitempty"`
	Signature *string         `json:"signature,omitempty"`
	ID        *string         `json:"id,omitempty"`
	Format    *string         `json:"format,omitempty"`
	Index     json.RawMessage `json:"index,omitempty"`
}

// add takes the entries of one delta and returns the readable text in them.
func (r *reasoningDetails) add(raw json.RawMessage) (string, error) {
	if r.size += len(raw); r.size > MaxCallBytes {
		return "", errCallsTooLong
	}
	var list []*reasoningDetail
	if err := unmarshal(raw, &list); err != nil {
		return "", err
	}
	said := ""
	for _, d := range list {
		if d == nil || d.Type == "" {
			continue
		}
		for _, s := range []*string{d.Text, d.Summary} {
			if s != nil {
				said += *s
			}
		}
		r.merge(d)
	}
	return said, nil
}

// merge joins an entry to the last one if it continues it: same type and index, and not another whole datum.
func (r *reasoningDetails) merge(d *reasoningDetail) {
	if n := len(r.entries); n > 0 && d.Data == nil {
		last := r.entries[n-1]
		if last.Type == d.Type && string(last.Index) == string(d.Index) && last.Data == nil {
			last.Text = concat(last.Text, d.Text)
			last.Summary = concat(last.Summary, d.Summary)
			last.Signature = later(last.Signature, d.Signature)
			last.ID = later(last.ID, d.ID)
			last.Format = later(last.Format, d.Format)
			return
		}
	}
	r.entries = append(r.entries, d)
}

func concat(a, b *string) *string {
	if a == nil || b == nil {
		return later(a, b)
	}
	s := *a + *b
	return &s
}

func later(a, b *string) *string {
	if b == nil || *b == "" && a != nil {
		return a
	}
	return b
}

// artefact is the whole list, nil where there was none.
func (r *reasoningDetails) artefact() json.RawMessage {
	if len(r.entries) == 0 {
		return nil
	}
	out, err := json.Marshal(r.entries)
	if err != nil {
		return nil // an index that is no JSON cannot have been decoded
	}
	return out
}

package agentsql

import (
	"bytes"
	"encoding/json"
	"slices"
)

// pairs puts the rows before and after a change together. It holds no more of
// them than are shown.
type pairs struct {
	c       change
	columns []targetColumn
	key     []int // the columns that find a row again; none where the change sets one
	olds    [][]value
	news    [][]value
}

func newPairs(c change) *pairs {
	p := &pairs{c: c, columns: c.table.columns}
	for i, column := range p.columns {
		if column.key {
			p.key = append(p.key, i)
		}
	}
	if slices.ContainsFunc(c.columns, func(set targetColumn) bool { return set.key }) {
		p.key = nil
	}
	return p
}

func (p *pairs) before(row []value) {
	if len(p.olds) < previewRows {
		p.olds = append(p.olds, row)
	}
}

func (p *pairs) after(row []value) bool {
	wanted := len(p.news) < previewRows
	if p.c.op == Update && len(p.key) > 0 {
		wanted = slices.ContainsFunc(p.olds, func(old []value) bool { return p.same(old, row) })
	}
	if wanted {
		p.news = append(p.news, row)
	}
	return true
}

// same reports whether two rows have the same key.
func (p *pairs) same(a, b []value) bool {
	return !slices.ContainsFunc(p.key, func(i int) bool { return !a[i].equal(b[i]) })
}

// rows are the pairs that are shown, and whether that is not all of total.
func (p *pairs) rows(total int) (out []PreviewRow, truncated bool) {
	out = []PreviewRow{}
	truncated = total > previewRows
	size := 0
	for i := range min(total, previewRows) {
		var row PreviewRow
		var cut bool
		switch {
		case p.c.op == Insert && i < len(p.news):
			row.After, cut = p.object(p.news[i])
		case p.c.op == Delete && i < len(p.olds):
			row.Before, cut = p.object(p.olds[i])
		case p.c.op == Update && i < len(p.olds):
			var more bool
			row.Before, cut = p.object(p.olds[i])
			row.After, more = p.object(p.counterpart(p.olds[i]))
			cut = cut || more
		default:
			return out, true
		}
		if size += len(row.Before) + len(row.After); size > previewBytes {
			return out, true
		}
		truncated = truncated || cut
		out = append(out, row)
	}
	return out, truncated
}

// counterpart is the row that an updated one became: that with the same primary
// key where the change leaves it alone, else the old row with the columns that
// were set, which are the same in all.
func (p *pairs) counterpart(old []value) []value {
	if len(p.key) > 0 {
		for _, row := range p.news {
			if p.same(old, row) {
				return row
			}
		}
	}
	row := slices.Clone(old)
	if len(p.news) == 0 {
		return row
	}
	for i, c := range p.columns {
		if slices.ContainsFunc(p.c.columns, func(set targetColumn) bool { return set.name == c.name }) {
			row[i] = p.news[0][i]
		}
	}
	return row
}

func (v value) equal(o value) bool {
	return v.text == o.text && bytes.Equal(v.raw, o.raw) && v.size == o.size
}

// object is one row as JSON, its values cut.
func (p *pairs) object(row []value) (json.RawMessage, bool) {
	var b bytes.Buffer
	cut := false
	b.WriteByte('{')
	for i, c := range p.columns {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(append(jsonString(c.name), ':'))
		cut = row[i].write(&b, previewValue) || cut
	}
	b.WriteByte('}')
	return b.Bytes(), cut
}

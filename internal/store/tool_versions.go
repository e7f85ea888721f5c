package store

import (
	"context"
	"encoding/json"
	"strconv"

	"hob"
)

// keepVersion copies a tool's row, as it was just written, to its versions. The headers stay sealed: they are bound to
// the tool and open in either place.
func keepVersion(ctx context.Context, t *tx, by hob.Principal, id hob.ToolID) error {
	_, err := t.exec(ctx, `INSERT INTO tool_versions (tool_id, version, name, description, input_schema, config, headers, is_active, changed_by, changed_at)
		SELECT id, version, name, description, input_schema, config, headers, is_active, CAST(? AS TEXT), updated_at FROM tools WHERE id = ?`,
		starter(by), string(id))
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, `DELETE FROM tool_versions WHERE tool_id = ? AND version <= (SELECT version FROM tools WHERE id = ?) - ?`,
		string(id), string(id), int64(hob.MaxToolVersions))
	return err
}

const versionColumns = `t.id, t.workspace_id, v.name, v.description, t.type, v.input_schema, v.config, v.headers, v.is_active, v.version,
	t.created_at, v.changed_at, v.changed_by`

// version reads a version with its headers open.
func (s *DB) version(r row) (hob.ToolVersion, error) {
	var x toolRow
	var v hob.ToolVersion
	if err := r.Scan(append(x.dest(), &v.By)...); err != nil {
		return v, err
	}
	var err error
	v.Tool, err = s.tool(x)
	return v, err
}

// ToolVersions lists what a tool was after each change.
func (s *DB) ToolVersions(ctx context.Context, by hob.Principal, id hob.ToolID) ([]hob.ToolVersion, error) {
	ctx, t := s.lookUp(ctx)
	tool, err := s.readTool(ctx, t, by, "", id)
	if err != nil {
		return nil, err
	}
	list, err := many(ctx, t, s.version, `SELECT `+versionColumns+` FROM tool_versions v JOIN tools t ON t.id = v.tool_id
		WHERE v.tool_id = ? ORDER BY v.version DESC`, string(tool.ID))
	for _, v := range list {
		for name := range v.Config.Headers {
			v.Config.Headers[name] = hob.Mask
		}
	}
	return list, hob.Wrap("list a tool's versions", err)
}

// RestoreTool writes an earlier version anew.
func (s *DB) RestoreTool(ctx context.Context, by hob.Principal, id hob.ToolID, version int64) (hob.Tool, error) {
	var tool hob.Tool
	err := s.configure(ctx, "restore a tool", func(ctx context.Context, t *tx) (err error) {
		if tool, err = s.readTool(ctx, t, by, hob.ScopeConfigure, id); err != nil {
			return err
		}
		old, err := one(ctx, t, s.version, `SELECT `+versionColumns+` FROM tool_versions v JOIN tools t ON t.id = v.tool_id
			WHERE v.tool_id = ? AND v.version = ?`, string(tool.ID), version)
		if none(err) {
			return hob.Errorf(hob.NotFound, "the tool has no version %d; the last %d are kept", version, hob.MaxToolVersions).WithCode("version_not_found")
		}
		if err != nil {
			return err
		}
		before := tool
		tool.Name, tool.Description, tool.InputSchema, tool.Config = old.Name, old.Description, old.InputSchema, old.Config
		t.did(by, "tool.restore", "tool", string(tool.ID), toolConfig(before), toolConfig(tool)).Detail = details("version", strconv.FormatInt(version, 10))
		return s.writeTool(ctx, t, by, &tool, before.Name)
	})
	if err != nil {
		return hob.Tool{}, err
	}
	return tool, nil
}

// builtinRow is what a workspace changed of one builtin tool.
type builtinRow struct {
	name string
	hob.BuiltinChange
}

func scanBuiltin(r row) (b builtinRow, err error) {
	var active int64
	var config string
	err = r.Scan(&b.name, &active, &b.Suffix, &config, &b.Version)
	b.IsActive, b.Config = active != 0, json.RawMessage(config)
	return b, err
}

// ChangeBuiltin writes what a workspace changed of a builtin tool.
func (s *DB) ChangeBuiltin(ctx context.Context, by hob.Principal, name string, c hob.BuiltinChange) error {
	if err := hob.Can(by, hob.ScopeConfigure, hob.Object{Kind: hob.ToolObject, Workspace: by.Workspace}); err != nil {
		return err
	}
	return s.configure(ctx, "change a builtin tool", func(ctx context.Context, t *tx) error {
		before, err := one(ctx, t, scanBuiltin, `SELECT name, is_active, suffix, config, version FROM builtin_tools WHERE workspace_id = ? AND name = ?`,
			string(by.Workspace), name)
		if err != nil && !none(err) {
			return err
		}
		if none(err) {
			t.did(by, "builtin.change", "builtin", name, nil, builtinConfig(c))
		} else {
			t.did(by, "builtin.change", "builtin", name, builtinConfig(before.BuiltinChange), builtinConfig(c))
		}
		// The first change of two at once makes the row; the second finds it and is refused.
		n, err := t.exec(ctx, `INSERT INTO builtin_tools (workspace_id, name, is_active, suffix, config, version, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (workspace_id, name) DO UPDATE SET is_active = excluded.is_active, suffix = excluded.suffix,
				config = excluded.config, version = excluded.version, updated_at = excluded.updated_at
			WHERE builtin_tools.version = excluded.version - 1`,
			string(by.Workspace), name, flag(c.IsActive), c.Suffix, string(object(c.Config)), max(c.Version, 1)+1, s.now())
		if err == nil && n == 0 {
			err = hob.Errorf(hob.Conflict, "the builtin tool %s was changed meanwhile; read it again", name).WithCode("tool_changed")
		}
		return err
	})
}

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"hob"
	"hob/internal/seal"
)

const toolColumns = `id, workspace_id, name, description, type, input_schema, config, headers, is_active, version, created_at, updated_at`

// scanTool reads a tool and opens its headers.
func (s *DB) scanTool(r row) (hob.Tool, error) {
	var x toolRow
	if err := r.Scan(x.dest()...); err != nil {
		return hob.Tool{}, err
	}
	return s.tool(x)
}

// toolRow is a tool as its row has it.
type toolRow struct {
	t                   hob.Tool
	schema, config      string
	headers             []byte
	active              int64
	createdAt, updateAt int64
}

func (x *toolRow) dest() []any {
	return []any{
		&x.t.ID, &x.t.Workspace, &x.t.Name, &x.t.Description, &x.t.Type, &x.schema, &x.config, &x.headers,
		&x.active, &x.t.Version, &x.createdAt, &x.updateAt,
	}
}

func (s *DB) tool(x toolRow) (hob.Tool, error) {
	t := x.t
	t.InputSchema, t.IsActive = json.RawMessage(x.schema), x.active != 0
	t.CreatedAt, t.UpdatedAt = hob.FromMicros(x.createdAt), hob.FromMicros(x.updateAt)
	if err := json.Unmarshal([]byte(x.config), &t.Config); err != nil {
		return hob.Tool{}, fmt.Errorf("read the configuration of tool %s: %w", t.ID, err)
	}
	if x.headers == nil {
		return t, nil
	}
	plain, err := s.box.Open(headersPlace(t.ID), x.headers)
	if err == nil {
		err = json.Unmarshal(plain, &t.Config.Headers)
	}
	if err != nil {
		return hob.Tool{}, fmt.Errorf("open the headers of tool %s: %w", t.ID, err)
	}
	return t, nil
}

func headersPlace(id hob.ToolID) string { return seal.Context("tools", string(id), "headers") }

// sealed splits a configuration into what is kept readable and its sealed headers, nil where there are none.
func (s *DB) sealed(id hob.ToolID, c hob.ToolConfig) (string, []byte, error) {
	headers := c.Headers
	c.Headers = nil
	open, err := json.Marshal(c)
	if err != nil {
		return "", nil, fmt.Errorf("encode a tool's configuration: %w", err)
	}
	if len(headers) == 0 {
		return string(open), nil, nil
	}
	plain := make(map[string]string, len(headers)) // as text: a Secret would marshal as its mask
	for name, value := range headers {
		plain[name] = string(value)
	}
	secret, err := json.Marshal(plain)
	if err != nil {
		return "", nil, fmt.Errorf("encode a tool's headers: %w", err)
	}
	return string(open), s.box.Seal(headersPlace(id), secret), nil
}

func toolObject(t hob.Tool) hob.Object {
	return hob.Object{Kind: hob.ToolObject, Workspace: t.Workspace}
}

// CreateTool keeps a new custom tool; its id and times are given here.
func (s *DB) CreateTool(ctx context.Context, by hob.Principal, tool hob.Tool) (hob.Tool, error) {
	tool.ID, tool.Workspace, tool.Version = hob.ToolID(hob.NewUUID()), by.Workspace, 1
	tool.CreatedAt = hob.FromMicros(s.now())
	tool.UpdatedAt = tool.CreatedAt
	tool.InputSchema = object(tool.InputSchema)
	if err := hob.Can(by, hob.ScopeConfigure, toolObject(tool)); err != nil {
		return hob.Tool{}, err
	}
	for name, value := range tool.Config.Headers {
		if masked(value) {
			return hob.Tool{}, unknownMask(name)
		}
	}
	config, headers, err := s.sealed(tool.ID, tool.Config)
	if err != nil {
		return hob.Tool{}, err
	}
	err = s.configure(ctx, "create a tool", func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, `INSERT INTO tools (`+toolColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			string(tool.ID), string(tool.Workspace), tool.Name, tool.Description, string(tool.Type), string(tool.InputSchema),
			config, headers, flag(tool.IsActive), tool.Version, tool.CreatedAt.Micros(), tool.UpdatedAt.Micros())
		if err != nil {
			return s.nameTaken(err, tool.Name)
		}
		t.did(by, "tool.create", "tool", string(tool.ID), nil, toolConfig(tool))
		return keepVersion(ctx, t, by, tool.ID)
	})
	if err != nil {
		return hob.Tool{}, err
	}
	return tool, nil
}

func (s *DB) nameTaken(err error, name string) error {
	if err != nil && s.d.conflict(err) {
		return hob.Errorf(hob.Conflict, "a tool named %q is there already; choose another name", name).WithCode("tool_exists")
	}
	return err
}

// readTool reads a tool that the principal may use with the scope; "" asks for sight alone. One that is read to be changed
// is held until the transaction ends.
func (s *DB) readTool(ctx context.Context, t *tx, by hob.Principal, scope hob.Scope, id hob.ToolID) (hob.Tool, error) {
	key, ok := uuid(id)
	if !ok {
		return hob.Tool{}, hob.Absent(hob.ToolObject)
	}
	tool, err := one(ctx, t, s.scanTool, `SELECT `+toolColumns+` FROM tools WHERE workspace_id = ? AND id = ?`+held(scope == hob.ScopeConfigure),
		string(by.Workspace), key)
	if err != nil {
		return hob.Tool{}, found(err, hob.ToolObject, "read a tool")
	}
	if scope == "" {
		err = see(by, toolObject(tool))
	} else {
		err = hob.Can(by, scope, toolObject(tool))
	}
	if err != nil {
		return hob.Tool{}, err
	}
	return tool, nil
}

// Tool reads one custom tool, its header values opened.
func (s *DB) Tool(ctx context.Context, by hob.Principal, id hob.ToolID) (hob.Tool, error) {
	ctx, t := s.lookUp(ctx)
	return s.readTool(ctx, t, by, "", id)
}

// Tools lists the workspace's custom tools by name.
func (s *DB) Tools(ctx context.Context, by hob.Principal) ([]hob.Tool, error) {
	if err := see(by, hob.Object{Kind: hob.ToolObject, Workspace: by.Workspace}); err != nil {
		return nil, err
	}
	list, err := many(ctx, s.read(), s.scanTool, `SELECT `+toolColumns+` FROM tools WHERE workspace_id = ? ORDER BY name, id`, string(by.Workspace))
	return list, hob.Wrap("list tools", err)
}

// UpdateTool changes what the patch sets. A new name is also the name of the tool's assignments.
func (s *DB) UpdateTool(ctx context.Context, by hob.Principal, id hob.ToolID, p hob.ToolPatch) (hob.Tool, error) {
	var tool hob.Tool
	err := s.configure(ctx, "update a tool", func(ctx context.Context, t *tx) (err error) {
		if tool, err = s.readTool(ctx, t, by, hob.ScopeConfigure, id); err != nil {
			return err
		}
		before := tool
		if err = patchTool(&tool, p); err != nil {
			return err
		}
		t.did(by, "tool.update", "tool", string(tool.ID), toolConfig(before), toolConfig(tool))
		return s.writeTool(ctx, t, by, &tool, before.Name)
	})
	if err != nil {
		return hob.Tool{}, err
	}
	return tool, nil
}

// writeTool writes a changed tool as its next version. before is the name it had.
func (s *DB) writeTool(ctx context.Context, t *tx, by hob.Principal, tool *hob.Tool, before string) error {
	tool.Version++
	tool.UpdatedAt = hob.FromMicros(max(s.now(), tool.UpdatedAt.Micros()))
	config, headers, err := s.sealed(tool.ID, tool.Config)
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, `UPDATE tools SET name = ?, description = ?, input_schema = ?, config = ?, headers = ?, is_active = ?, version = ?, updated_at = ? WHERE id = ?`,
		tool.Name, tool.Description, string(tool.InputSchema), config, headers, flag(tool.IsActive), tool.Version, tool.UpdatedAt.Micros(), string(tool.ID))
	if err != nil {
		return s.nameTaken(err, tool.Name)
	}
	if tool.Name != before {
		if _, err = t.exec(ctx, `UPDATE assignments SET tool_name = ? WHERE tool_id = ?`, tool.Name, string(tool.ID)); err != nil {
			return s.nameTaken(err, tool.Name)
		}
	}
	return keepVersion(ctx, t, by, tool.ID)
}

func patchTool(t *hob.Tool, p hob.ToolPatch) error {
	if p.Name != nil {
		t.Name = *p.Name
	}
	if p.Description != nil {
		t.Description = *p.Description
	}
	if p.InputSchema != nil {
		t.InputSchema = object(p.InputSchema)
	}
	if p.IsActive != nil {
		t.IsActive = *p.IsActive
	}
	if p.Config == nil {
		return nil
	}
	headers, err := patchHeaders(t.Config, *p.Config)
	if err != nil {
		return err
	}
	t.Config = *p.Config
	t.Config.Headers = headers
	return nil
}

// patchHeaders gives the headers of a changed configuration. A masked value means the stored one, but only as long as it
// goes to the same address: somebody who may not read a secret must not be able to have it sent elsewhere.
func patchHeaders(old, changed hob.ToolConfig) (map[string]hob.Secret, error) {
	moved := old.Endpoint != changed.Endpoint
	headers := make(map[string]hob.Secret, len(changed.Headers))
	for name, value := range changed.Headers {
		if !masked(value) {
			headers[name] = value
			continue
		}
		stored, ok := old.Headers[name]
		switch {
		case !ok:
			return nil, unknownMask(name)
		case !moved:
			headers[name] = stored
		}
	}
	return headers, nil
}

// masked says whether a value is what a secret is shown as, with or without its last characters.
func masked(v hob.Secret) bool { return strings.HasPrefix(string(v), hob.Mask) }

func unknownMask(name string) error {
	return hob.Errorf(hob.Invalid, "the header %s is masked, but no value is stored for it; send the value itself", name).
		With("field", "config.headers."+name)
}

// DeleteTool deletes a tool with its assignments and versions.
func (s *DB) DeleteTool(ctx context.Context, by hob.Principal, id hob.ToolID) (had []hob.AgentRef, err error) {
	err = s.configure(ctx, "delete a tool", func(ctx context.Context, t *tx) error {
		tool, err := s.readTool(ctx, t, by, hob.ScopeConfigure, id)
		if err != nil {
			return err
		}
		had, err = many(ctx, t, func(r row) (a hob.AgentRef, err error) { err = r.Scan(&a.ID, &a.Name); return a, err },
			`SELECT id, name FROM agents WHERE workspace_id = ? AND (tool_ids LIKE ? OR id IN (SELECT agent_id FROM assignments WHERE tool_id = ?))
			ORDER BY name, id`, string(by.Workspace), `%"`+string(tool.ID)+`"%`, string(tool.ID))
		if err != nil {
			return hob.Wrap("list the agents of a tool", err)
		}
		t.did(by, "tool.delete", "tool", string(tool.ID), toolConfig(tool), nil)
		_, err = t.exec(ctx, `DELETE FROM tools WHERE id = ?`, string(tool.ID))
		return err
	})
	return had, err
}

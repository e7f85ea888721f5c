package api

import (
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"hob"
)

// shapePeople is shape for the bodies about hooks and approvals.
func shapePeople(name string, s *jsonschema.Schema) error {
	switch p := s.Properties; name {
	case "HookInput":
		return shapeHook(p)
	case "HookChange":
		boundPosition(p["position"])
	case "ApproveInput":
		p["approved"].Type = "boolean"
		p["modified_input"].Types = []string{"null", "object"}
	case "ApproveAnswer":
		shapeApproval(p["approval"])
	case "Approval":
		shapeApproval(s)
	case "ApprovalList", "Inbox":
		shapeApproval(p["approvals"].Items)
	}
	return nil
}

// shapeHook gives a new hook's config its members.
func shapeHook(p map[string]*jsonschema.Schema) error {
	for _, name := range []string{"event", "type"} {
		p[name].Types, p[name].Type = nil, "string"
	}
	p["event"].Enum, p["type"].Enum = anyOf(hob.HookEvents()), anyOf(hob.HookTypes())
	boundPosition(p["position"])
	config, err := jsonschema.ForType(reflect.TypeFor[hookConfigInput](), &jsonschema.ForOptions{TypeSchemas: wireTypes()})
	if err != nil {
		return err
	}
	loosen(config)
	config.Description = p["config"].Description
	rule, err := jsonschema.ForType(reflect.TypeFor[hob.Rule](), nil)
	if err != nil {
		return err
	}
	config.Properties["rules"].Types, config.Properties["rules"].Items = []string{"null", "array"}, rule
	config.Properties["action"].Enum = []any{"deny", "allow"}
	p["config"] = config
	return nil
}

func boundPosition(s *jsonschema.Schema) {
	least, most := float64(minPosition), float64(maxPosition)
	s.Minimum, s.Maximum = &least, &most
}

// shapeApproval tells of an approval what its Go type cannot.
func shapeApproval(s *jsonschema.Schema) {
	s.Properties["tool_input"].Type = "object"
	s.Properties["modified_input"].Type = "object"
}

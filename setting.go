package hob

import (
	"context"
	"encoding/json"
)

// SettingType is the type of a setting's value.
type SettingType string

// The types.
const (
	IntSetting    SettingType = "int"
	FloatSetting  SettingType = "float"
	StringSetting SettingType = "str"
	BoolSetting   SettingType = "bool"
)

// Where a setting's value is from.
const (
	FromWorkspace   = "workspace"
	FromEnvironment = "environment" // the operator's
	FromDefault     = "default"
)

// Setting describes one key of a workspace's settings and, in a list, its value.
type Setting struct {
	Key         string      `json:"key"`
	Label       string      `json:"label"`
	Description string      `json:"description"`
	Type        SettingType `json:"type"`
	Default     any         `json:"default"`
	Value       any         `json:"value"`  // Mask for a secret that is set
	Source      string      `json:"source"` // where the value is from: FromWorkspace, FromEnvironment or FromDefault
	Advanced    bool        `json:"advanced"`
	Secret      bool        `json:"secret"`
	Min         *float64    `json:"min,omitempty"`
	Max         *float64    `json:"max,omitempty"`
	Choices     []string    `json:"choices,omitempty"`
	Subcategory string      `json:"subcategory,omitempty"`
}

// SettingCategory is a group of settings.
type SettingCategory struct {
	Label    string    `json:"label"`
	Settings []Setting `json:"settings"`
}

// SettingReader gives a workspace's value of a key: what was set there, else the operator's environment, else the
// default. The value is in the setting's text form; "" for a key that nobody set and that has no default.
type SettingReader func(ctx context.Context, ws WorkspaceID, key string) (string, error)

// StoredSetting is a value as it is kept. Secret ones are sealed at rest.
type StoredSetting struct {
	Value  string
	Secret bool
}

// SettingStore keeps the settings that a workspace changed. Changing them needs ScopeAdmin.
type SettingStore interface {
	StoredSettings(ctx context.Context, ws WorkspaceID) (map[string]StoredSetting, error)
	// ChangeSettings writes values and removes those that are nil, all or none.
	ChangeSettings(ctx context.Context, by Principal, change map[string]*StoredSetting) error
}

// ProviderKey is how a workspace reaches a model provider: with a key of its own, or at an address of its own that
// speaks OpenAI's dialect. It comes before the operator's.
type ProviderKey struct {
	ID              string `json:"id"`
	Provider        string `json:"provider"`
	MaskedKey       string `json:"masked_key"`         // eight bullets and the last four characters; "" without a key
	BaseURL         string `json:"base_url,omitempty"` // with the version, as https://host/v1
	IsValid         bool   `json:"is_valid"`
	LastValidatedAt Time   `json:"last_validated_at"`
	CreatedAt       Time   `json:"created_at"`
	UpdatedAt       Time   `json:"updated_at"`
	Key             Secret `json:"-"`
}

// ProviderKeyStore keeps a workspace's provider keys, one per provider, the keys sealed. Reading and changing need
// ScopeAdmin, but for OpenProviderKeys.
type ProviderKeyStore interface {
	ProviderKeys(ctx context.Context, by Principal) ([]ProviderKey, error) // by provider
	// PutProviderKeys makes or replaces keys, all or none, and returns them.
	PutProviderKeys(ctx context.Context, by Principal, keys []ProviderKey) ([]ProviderKey, error)
	DeleteProviderKey(ctx context.Context, by Principal, provider string) error
	// OpenProviderKeys is for model calls: the keys of a workspace with their secrets.
	OpenProviderKeys(ctx context.Context, ws WorkspaceID) ([]ProviderKey, error)
}

// ModelProfile is what probing a model at an endpoint found: how it deviates from what the tables say.
type ModelProfile struct {
	Endpoint string          `json:"endpoint"` // base URL
	Model    string          `json:"model"`    // as the endpoint names it
	TestedAt Time            `json:"tested_at"`
	Facts    json.RawMessage `json:"facts"` // read by the provider package
}

// ProfileStore keeps model profiles. They belong to the server, not to a workspace: writing needs ScopeAdmin.
type ProfileStore interface {
	Profiles(ctx context.Context) ([]ModelProfile, error)
	PutProfile(ctx context.Context, by Principal, p ModelProfile) error
	// DeleteProfile forgets what was found. It is NotFound where nothing was.
	DeleteProfile(ctx context.Context, by Principal, endpoint, model string) error
}

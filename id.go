// Package hob is the vocabulary of Hob, the server that gives applications and teams their AI agents: the nouns
// (agent, tool, session, run, step, event, message), the small interfaces between parts, the errors, and the pure
// functions that decide. It holds no I/O, starts no goroutine and imports only the standard library. All behaviour
// lives below internal/; the types here are also what the API sends and what package client returns.
package hob

import (
	"crypto/rand"
	"encoding/hex"
	"time"
)

// Each kind of id is its own type, so that two of them cannot be swapped unnoticed.
type (
	// WorkspaceID names a workspace; the first one is DefaultWorkspace.
	WorkspaceID string
	// AgentID, ToolID, AssignmentID and KeyID are UUIDs (version 4).
	AgentID      string
	ToolID       string
	AssignmentID string
	KeyID        string
	// SessionID is "sess_" and 12 hex digits, or whatever the client chose (at most 255 bytes).
	SessionID string
	// RunID is "run_" and 12 hex digits; "seed_" for turns that were seeded into a session.
	RunID string
	// CallID names one tool call of a run: the provider's own id where usable, else "call_" and 12 hex digits.
	CallID string
)

// DefaultWorkspace is the workspace made at the first start.
const DefaultWorkspace WorkspaceID = "default"

// MaxSessionID is the longest session id a client may choose, in bytes.
const MaxSessionID = 255

// Clock tells the time. It is a field wherever time is read, so that tests may set it.
type Clock func() time.Time

// SystemClock is the machine's clock in UTC, cut to the microseconds that the store keeps.
func SystemClock() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// NewUUID returns a random UUID (version 4) in its usual text form.
func NewUUID() string {
	var b [16]byte
	read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	var out [36]byte
	hex.Encode(out[0:8], b[0:4])
	out[8] = '-'
	hex.Encode(out[9:13], b[4:6])
	out[13] = '-'
	hex.Encode(out[14:18], b[6:8])
	out[18] = '-'
	hex.Encode(out[19:23], b[8:10])
	out[23] = '-'
	hex.Encode(out[24:], b[10:])
	return string(out[:])
}

// NewRunID returns a fresh run id.
func NewRunID() RunID { return RunID("run_" + RandomHex(6)) }

// NewSessionID returns a fresh session id.
func NewSessionID() SessionID { return SessionID("sess_" + RandomHex(6)) }

// NewCallID returns a fresh call id, for calls whose provider gave none that can be used.
func NewCallID() CallID { return CallID("call_" + RandomHex(6)) }

// RandomHex returns 2n hex digits from the system's random source.
func RandomHex(n int) string {
	b := make([]byte, n)
	read(b)
	return hex.EncodeToString(b)
}

// read fills b with random bytes; crypto/rand never fails on the platforms Go supports.
func read(b []byte) { _, _ = rand.Read(b) }

// IsUUID says whether s has the form of a UUID; ids of other forms cannot exist and are answered with NotFound.
func IsUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return false
			}
		}
	}
	return true
}

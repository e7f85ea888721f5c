package provider

import (
	"encoding/json"
	"time"
)

// googleBadKey is the reason in Google's answer to a wrong key, whose status is that of a bad request.
const googleBadKey = "API_KEY_INVALID"

// google takes what Google's error object has beyond the others': a status in words, and details with a reason and with
// the time to wait.
func (e *vendorError) google(status, details json.RawMessage) {
	if e.Type == "" {
		var word string
		if json.Unmarshal(status, &word) == nil {
			e.Type = word
		}
	}
	var list []struct {
		Reason string `json:"reason"`
		Delay  string `json:"retryDelay"`
	}
	if !present(details) || unmarshal(details, &list) != nil {
		return
	}
	for _, d := range list {
		if d.Reason == googleBadKey {
			e.Type = d.Reason
		}
		if wait, err := time.ParseDuration(d.Delay); err == nil && wait > 0 {
			e.Wait = min(wait, maxAsked)
		}
	}
}

package api

import "net/http"

// The answer to browsers of other origins.
const (
	corsMethods = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
	corsHeaders = "Content-Type, Authorization, apikey, X-Requested-With, " + idempotencyHeader + ", Last-Event-ID, Range, X-Client-Info, " + upsertHeader
	corsExpose  = "X-Request-Id, Retry-After, " + replayedHeader + ", ETag, Content-Range, Content-Disposition"
	corsMaxAge  = "600"
)

// cors answers preflight requests, which carry no key, and marks the others' answers as readable for the listed origins.
// It says whether the request is answered. Credentials are never allowed: keys come in the Authorization header only.
func (s *server) cors(w http.ResponseWriter, r *http.Request) bool {
	if len(s.origins) > 0 {
		w.Header().Add("Vary", "Origin")
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	preflight := r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
	if s.origins[origin] {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", corsExpose)
		if preflight {
			h.Set("Access-Control-Allow-Methods", corsMethods)
			h.Set("Access-Control-Allow-Headers", corsHeaders)
			h.Set("Access-Control-Max-Age", corsMaxAge)
		}
	}
	if preflight {
		s.sent(w, http.StatusNoContent)
	}
	return preflight
}

package api

import (
	"context"
	"net/http"
	"time"

	"hob"
)

const readyTime = 2 * time.Second

type healthAnswer struct {
	Status  string `json:"status"`
	Service string `json:"service"`
	Version string `json:"version"`
}

type readyAnswer struct {
	Status string `json:"status"`
}

// meAnswer is who the caller is to the server.
type meAnswer struct {
	hob.Principal
	Owner string `json:"owner"` // how what the caller makes is marked; empty for the workspace's own
}

func health(c *call) error {
	return c.reply(http.StatusOK, healthAnswer{"healthy", "hob", c.s.Version})
}

// ready asks the parts behind the API. Why one does not work is for the log.
func ready(c *call) error {
	ctx, cancel := context.WithTimeout(c.Context(), readyTime)
	defer cancel()
	check := c.s.Store.Ping
	if c.s.Ready != nil {
		check = c.s.Ready
	}
	err := check(ctx)
	if c.s.unready.Note(err); err != nil {
		return hob.Errorf(hob.Unavailable, "the server is not ready").WithCode("not_ready")
	}
	return c.reply(http.StatusOK, readyAnswer{"ready"})
}

func whoAmI(c *call) error {
	by := c.by
	by.Scopes = filled(by.Scopes)
	return c.reply(http.StatusOK, meAnswer{by, by.Owner()})
}

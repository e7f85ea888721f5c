package provider_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hob"
	"hob/internal/fakeai"
	"hob/internal/provider"
)

func TestProviders_RateLimitThenSuccess(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, fakeai.Sequence(fakeai.Error(429, "slow down"), fakeai.Error(503, "busy"), fakeai.Text("Hi.")), nil)
		if a := collect(t, b.model, ask("hi")); a.Err != nil || a.Text != "Hi." || len(b.fake.Requests()) != 3 {
			t.Errorf("got %+v after %d requests", a, len(b.fake.Requests()))
		}
	})
}

func TestProviders_ErrorsAreSortedByStatus(t *testing.T) {
	t.Parallel()
	cases := []struct {
		status int
		class  hob.ErrorClass
		tries  int
	}{
		{400, hob.ClassBadRequest, 1},
		{401, hob.ClassUnauthorized, 1},
		{402, hob.ClassUnauthorized, 1},
		{403, hob.ClassUnauthorized, 1},
		{404, hob.ClassBadRequest, 1},
		{408, hob.ClassModelError, 4},
		{409, hob.ClassModelError, 4},
		{413, hob.ClassPromptTooLong, 1},
		{422, hob.ClassBadRequest, 1},
		{425, hob.ClassModelError, 4},
		{429, hob.ClassRateLimit, 4},
		{500, hob.ClassModelError, 4},
		{501, hob.ClassModelError, 1},
		{502, hob.ClassModelError, 4},
		{503, hob.ClassModelError, 4},
		{504, hob.ClassModelError, 4},
		{529, hob.ClassModelError, 4},
	}
	each(t, func(t *testing.T, v vendor) {
		said := "no"
		if v.keyed {
			said = "no: " + testKey
		}
		for _, c := range cases {
			b := newBed(t, v, fakeai.Always(fakeai.Error(c.status, said)), nil)
			a := collect(t, b.model, ask("hi"))
			if a.Err == nil || a.Err.Class != c.class || a.Err.Status != c.status || len(b.fake.Requests()) != c.tries {
				t.Errorf("%d gave %+v after %d tries", c.status, a.Err, len(b.fake.Requests()))
				continue
			}
			if a.Deltas != 0 || v.keyed && !strings.Contains(a.Err.Message, hob.Mask) {
				t.Errorf("%d: %d deltas, message %q", c.status, a.Deltas, a.Err.Message)
			}
			if c.class == hob.ClassUnauthorized && !strings.Contains(a.Err.Message, v.keyVar) {
				t.Errorf("%d does not name %s: %q", c.status, v.keyVar, a.Err.Message)
			}
		}
	})
}

func TestProviders_WrongKeyNamesTheVariable(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		if !v.keyed {
			return
		}
		b := newBed(t, v, nil, func(c *provider.Config) {
			for _, e := range []*provider.Endpoint{&c.OpenAI, &c.Anthropic, &c.Gemini, &c.OpenRouter} {
				e.Key = "sk-wrong-key-0000"
			}
		})
		a := collect(t, b.model, ask("hi"))
		if a.Err == nil || a.Err.Class != hob.ClassUnauthorized || !strings.Contains(a.Err.Message, v.keyVar) ||
			strings.Contains(a.Err.Message, "sk-wrong-key-0000") {
			t.Errorf("got %+v", a.Err)
		}
	})
}

func TestProviders_CutBeforeTheFirstDeltaIsTriedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		atOnce := fakeai.Text("lost")
		atOnce.CutAfter = -1
		behindTheHead := fakeai.Text("lost")
		behindTheHead.CutAfter = 1
		b := newBed(t, v, fakeai.Sequence(atOnce, behindTheHead, fakeai.Text("Hi.")), nil)
		if a := collect(t, b.model, ask("hi")); a.Err != nil || a.Text != "Hi." || len(b.fake.Requests()) != 3 {
			t.Errorf("got %+v after %d requests", a, len(b.fake.Requests()))
		}
	})
}

func TestProviders_CutForGoodIsAModelError(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, fakeai.Always(fakeai.Reply{CutAfter: -1}), nil)
		a := collect(t, b.model, ask("hi"))
		if a.Err == nil || a.Err.Class != hob.ClassModelError || len(b.fake.Requests()) != 1+provider.DefaultRetries {
			t.Errorf("got %+v after %d requests", a.Err, len(b.fake.Requests()))
		}
	})
}

func TestProviders_CutBehindTheFirstDeltaIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		cut := fakeai.Tokens(10)
		cut.CutAfter, cut.Interval = 6, time.Millisecond
		b := newBed(t, v, fakeai.Sequence(cut, fakeai.Text("again")), nil)
		a := collect(t, b.model, ask("hi"))
		if a.Err == nil || a.Err.Class != hob.ClassCut || !strings.HasPrefix(a.Text, " tok0 tok1") || len(b.fake.Requests()) != 1 {
			t.Errorf("got %+v %+v after %d requests", a.Err, a, len(b.fake.Requests()))
		}
	})
}

func TestProviders_ErrorInsideTheStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		broken := fakeai.Tokens(10)
		broken.ErrorAfter, broken.Type, broken.Message = 6, "overloaded_error", "Overloaded"
		early := broken
		early.ErrorAfter = 1
		b := newBed(t, v, fakeai.Sequence(early, broken), nil)
		a := collect(t, b.model, ask("hi"))
		if a.Err == nil || a.Err.Class != hob.ClassCut || !strings.Contains(a.Err.Message, "Overloaded") || len(b.fake.Requests()) != 2 {
			t.Errorf("got %+v after %d requests", a.Err, len(b.fake.Requests()))
		}
	})
}

func TestProviders_SilenceEndsTheTry(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		silent := fakeai.Reply{Hang: true, CutAfter: 0, Wait: time.Minute}
		stuck := fakeai.Tokens(3)
		stuck.Hang = true
		b := newBed(t, v, fakeai.Sequence(silent, stuck), func(c *provider.Config) {
			c.FirstWait, c.Idle = 80*time.Millisecond, 80*time.Millisecond
		})
		a := collect(t, b.model, ask("hi"))
		if len(b.fake.Requests()) != 2 || a.Text != " tok0 tok1 tok2" {
			t.Errorf("got %+v after %d requests", a, len(b.fake.Requests()))
		}
	})
}

func TestProviders_IdleStreamIsCut(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		slow := fakeai.Tokens(3)
		slow.Interval = 10 * time.Second
		b := newBed(t, v, func(p fakeai.Parsed) fakeai.Reply {
			r := slow
			if p.Number == 1 {
				r.Text = nil
			}
			return r
		}, func(c *provider.Config) {
			c.FirstWait, c.Idle, c.Retries = 100*time.Millisecond, 100*time.Millisecond, -1
		})
		if a := collect(t, b.model, ask("hi")); a.Err == nil || a.Err.Class != hob.ClassModelError || !strings.Contains(a.Err.Message, "silent") {
			t.Errorf("got %+v", a.Err)
		}
	})
}

func TestProviders_TotalTimeBoundsAllTries(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		endless := fakeai.Tokens(500)
		endless.Interval = 5 * time.Millisecond
		b := newBed(t, v, fakeai.Always(endless), func(c *provider.Config) { c.Total = time.Second })
		start := time.Now()
		a := collect(t, b.model, ask("hi"))
		if a.Err == nil || a.Err.Class != hob.ClassCut || a.Text == "" || time.Since(start) > 5*time.Second {
			t.Errorf("after %s: %+v", time.Since(start), a.Err)
		}
	})
}

func TestProviders_CancelAmidTheStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		endless := fakeai.Tokens(2_000)
		endless.Interval = 5 * time.Millisecond
		b := newBed(t, v, fakeai.Always(endless), nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var last error
		r := ask("hi")
		r.Model = b.model.Model
		for d, err := range b.model.Provider.Stream(ctx, r) {
			if d.Text != "" {
				cancel()
			}
			last = err
		}
		var e *hob.ProviderError
		if !errors.As(last, &e) || e.Class != hob.ClassCancelled || !errors.Is(e, context.Canceled) {
			t.Errorf("got %v", last)
		}
	})
}

func TestProviders_LeavingTheRangeEndsTheRequest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		gone := make(chan struct{})
		fake := fakeai.New(fakeai.Options{Extra: v.extra, Reply: fakeai.Always(fakeai.Reply{Text: []string{"a", "b"}, Interval: time.Millisecond, Hang: true})})
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fake.ServeHTTP(w, r)
			close(gone)
		}))
		defer srv.Close()
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		c := provider.Config{Clients: direct{&http.Client{Transport: transport}}}
		v.config(&c, srv.URL)
		m, err := provider.New(c).Open(context.Background(), hob.DefaultWorkspace, v.model)
		if err != nil {
			t.Fatal(err)
		}
		r := ask("hi")
		r.Model = m.Model
		for d := range m.Provider.Stream(t.Context(), r) {
			if d.Text != "" {
				break
			}
		}
		select {
		case <-gone:
		case <-time.After(10 * time.Second):
			t.Error("the request goes on although nobody listens")
		}
	})
}

func TestProviders_RetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, fakeai.Sequence(fakeai.Error(429, "slow down").WithRetryAfter("0.3"), fakeai.Text("Hi.")), nil)
		start := time.Now()
		a := collect(t, b.model, ask("hi"))
		if d := time.Since(start); a.Text != "Hi." || d < 300*time.Millisecond {
			t.Errorf("tried again after %s: %+v", d, a)
		}
	})
}

func TestProviders_AWaitBeyondTheDeadlineIsNotBegun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, fakeai.Always(fakeai.Error(429, "slow down").WithRetryAfter("30")), nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		a := collectWith(ctx, t, b.model, ask("hi"))
		if a.Err == nil || a.Err.Class != hob.ClassRateLimit || a.Err.RetryAfter != 30*time.Second || time.Since(start) > 2*time.Second {
			t.Errorf("after %s: %+v", time.Since(start), a.Err)
		}
	})
}

func TestProviders_ALongerWaitThanIsGrantedIsToldInTheError(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		b := newBed(t, v, fakeai.Always(fakeai.Error(429, "slow down").WithRetryAfter("600")), nil)
		a := collect(t, b.model, ask("hi"))
		if a.Err == nil || a.Err.RetryAfter != 10*time.Minute || len(b.fake.Requests()) != 1 ||
			!strings.Contains(a.Err.Message, "slow down") || !strings.Contains(a.Err.Message, "asks to be left alone for 10m0s") {
			t.Errorf("after %d requests: %+v", len(b.fake.Requests()), a.Err)
		}
	})
}

func TestProviders_ShouldRetryHeaderDecides(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		no := fakeai.Error(500, "for good")
		no.Header = http.Header{"X-Should-Retry": {"false"}}
		b := newBed(t, v, fakeai.Always(no), nil)
		if collect(t, b.model, ask("hi")); len(b.fake.Requests()) != 1 {
			t.Errorf("x-should-retry: false was tried %d times", len(b.fake.Requests()))
		}
		yes := fakeai.Error(400, "once more")
		yes.Header = http.Header{"X-Should-Retry": {"true"}}
		b = newBed(t, v, fakeai.Sequence(yes, fakeai.Text("Hi.")), nil)
		if a := collect(t, b.model, ask("hi")); a.Text != "Hi." {
			t.Errorf("x-should-retry: true was not tried again: %+v", a.Err)
		}
	})
}

func TestProviders_AnEndedAnswerIsNotHeldUpByAnOpenConnection(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendor) {
		r := fakeai.Text("Hi.")
		r.Hang = true
		b := newBed(t, v, fakeai.Always(r), nil)
		start := time.Now()
		if a := collect(t, b.model, ask("hi")); a.Err != nil || a.Text != "Hi." || time.Since(start) > 5*time.Second {
			t.Errorf("after %s: %+v", time.Since(start), a)
		}
	})
}

func TestProviders_ManyRetriesDoNotOverflowTheWait(t *testing.T) {
	t.Parallel()
	b := newBed(t, vendors[0], fakeai.Always(fakeai.Error(500, "no")), func(c *provider.Config) {
		c.Retries, c.RetryBase, c.BreakAfter = 100, time.Nanosecond, -1
	})
	if a := collect(t, b.model, ask("hi")); a.Err == nil || len(b.fake.Requests()) != 101 {
		t.Errorf("%d tries, %+v", len(b.fake.Requests()), a.Err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"bytes"
	"net/http"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// A send whose response was lost is repeated, and accepted once.
func TestSentOnceThoughTheAnswerWasLost(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c, p, _ := to(t, s, s.Dev.APIKey)
		p.trouble = func(n int, r *http.Request) (*http.Response, bool, error) { return nil, n < 3, nil }
		m := hello()
		m.Attachments = []client.Attachment{{Filename: "x", Content: bytes.NewReader(make([]byte, 1<<20))}}
		a, err := c.Send(t.Context(), m)
		if err != nil || !a.Replayed || len(p.requests()) != 3 {
			t.Errorf("%d requests, %+v, %v", len(p.requests()), a, err)
		}
		alone(t, c, a)
	})
}

// An API key whose response was lost is made once, and the repeated request gets it.
func TestMadeOnceThoughTheAnswerWasLost(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c, p, _ := to(t, s, s.Dev.APIKey)
		list := func() int {
			page, err := c.ListAPIKeys(t.Context(), client.Paging{})
			if err != nil {
				t.Fatal(err)
			}
			return len(page.Data)
		}
		before := list()
		asked := len(p.requests())
		p.trouble = func(n int, _ *http.Request) (*http.Response, bool, error) { return nil, n < asked+3, nil }
		k, err := c.CreateAPIKey(t.Context(), client.NewAPIKey{Name: "shop"})
		if err != nil || k.Key == "" || len(p.requests()) != asked+3 {
			t.Fatalf("%d requests, %+v, %v", len(p.requests())-asked, k, err)
		}
		if n := list() - before; n != 1 {
			t.Errorf("%d keys were made", n)
		}
	})
}

// alone fails the test unless a is the only sent message.
func alone(t *testing.T, c *client.Client, a *client.AcceptedMessage) {
	t.Helper()
	page, err := c.ListMessages(t.Context(), client.MessageFilter{}, client.Paging{})
	if err != nil || len(page.Data) != 1 || page.Data[0].ID != a.ID {
		t.Errorf("the messages are %+v, %v", page, err)
	}
}

// If many programs send the same with one key at once, there is one message. Programs whose key is
// in use retry.
func TestSentOnceByMany(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c, _, _ := to(t, s, s.Dev.APIKey, client.WithAttempts(1000))
		got := make([]*client.AcceptedMessage, 50)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() {
				m := hello()
				m.IdempotencyKey = "order-42"
				var err error
				if got[i], err = c.Send(t.Context(), m); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			return
		}
		first := 0
		for _, a := range got {
			if a.ID != got[0].ID {
				t.Errorf("accepted as %s and as %s", got[0].ID, a.ID)
			}
			if !a.Replayed {
				first++
			}
		}
		if first != 1 {
			t.Errorf("%d answers were the first", first)
		}
		alone(t, c, got[0])
	})
}

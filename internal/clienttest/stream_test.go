// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
)

// roundTripper responds in place of the service.
type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Wherever a connection breaks, each event arrives once.
func TestStreamBreaks(t *testing.T) {
	const whole = "id: 7\n\nid: 8\nevent: bounce\ndata: {\"id\":\"a\",\"data\":{}}\n\n: nothing\nid: 9\n\nid: 12\nevent: bounce\ndata: {\"id\":\"b\",\"data\":{}}\n\n"
	rest := map[string]string{ // the service's response to a client that continues there
		"":   whole,
		"7":  whole,
		"8":  whole[strings.Index(whole, ": nothing"):],
		"9":  whole[strings.Index(whole, "id: 12"):],
		"12": "",
	}
	for cut := range len(whole) + 1 {
		asked := 0
		transport := roundTripper(func(r *http.Request) (*http.Response, error) {
			text, known := rest[r.Header.Get("Last-Event-ID")]
			if !known {
				t.Errorf("cut at %d: it goes on from %q", cut, r.Header.Get("Last-Event-ID"))
			}
			if asked++; asked == 1 {
				text = text[:cut]
			}
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(text))}, nil
		})
		c, err := client.New("http://localhost", "ms_x", client.WithHTTPClient(&http.Client{Transport: transport}),
			client.WithWait(func(ctx context.Context, _ time.Duration) error { return ctx.Err() }))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for e, err := range c.StreamEvents(t.Context(), client.EventFilter{}, "") {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, e.ID+e.Cursor); len(got) == 2 {
				break
			}
		}
		if !slices.Equal(got, []string{"a8", "b12"}) {
			t.Errorf("cut at %d: %v", cut, got)
		}
	}
}

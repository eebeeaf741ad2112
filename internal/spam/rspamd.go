// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/summary"
)

// Limits on requests to rspamd and its replies.
const (
	maxRspamdMessage = 20 << 20 // octets of a message; spam is small, and rspamd reads it into memory
	maxRspamdReply   = 1 << 20  // octets
	maxSymbolName    = 64       // octets of a symbol's name
	maxPoints        = 10_000   // limit of scores
)

// Rspamd is a client of rspamd's HTTP protocol.
type Rspamd struct {
	backend
	url    string
	client *http.Client
}

// NewRspamd returns a client of the rspamd at a URL such as http://127.0.0.1:11333. limit is the
// time limit for a message (20 s if 0).
func NewRspamd(base string, limit time.Duration) (*Rspamd, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the URL of an rspamd looks like http://127.0.0.1:11333")
	}
	const concurrent = 16
	r := &Rspamd{backend: newBackend(concurrent, cmp.Or(limit, 20*time.Second)), url: strings.TrimSuffix(base, "/") + "/checkv2"}
	r.client = &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: concurrent, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: r.timeout},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return r, nil
}

// Check asks rspamd about a message.
func (r *Rspamd) Check(ctx context.Context, m *Message) (o summary.SpamResult, err error) {
	err = r.call(ctx, func(ctx context.Context) (ok bool, err error) {
		body, err := m.Open(ctx)
		if err != nil {
			return true, err
		}
		defer body.Close() //nolint:errcheck // only read
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, body.All())
		if err != nil {
			return true, err
		}
		req.ContentLength = body.Size()
		m.addRspamdHeaders(req.Header)
		resp, err := r.client.Do(req)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close() //nolint:errcheck // only read
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxRspamdReply+1))
		if err != nil {
			return false, err
		}
		if resp.StatusCode != http.StatusOK {
			// One rejected message must not disable rspamd for others.
			return resp.StatusCode < 500, fmt.Errorf("it answered %s", resp.Status)
		}
		o, err = parseRspamdReply(text)
		return err == nil, err
	})
	return o, err
}

// addRspamdHeaders adds the message's envelope and client to the request.
func (m *Message) addRspamdHeaders(h http.Header) {
	add := func(name, value string) {
		if value = cleanHeaderValue(value); value != "" {
			h.Add(name, value)
		}
	}
	add("Queue-Id", m.ID)
	add("From", m.From)
	for _, to := range m.To {
		add("Rcpt", to)
	}
	if m.Client.IsValid() {
		add("IP", m.Client.String())
	}
	add("Helo", m.Helo)
	add("Hostname", m.ClientName)
}

// cleanHeaderValue removes characters that HTTP header fields can't contain.
func cleanHeaderValue(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}

// parseRspamdReply parses a reply to /checkv2.
func parseRspamdReply(text []byte) (summary.SpamResult, error) {
	var a struct {
		Action   *string `json:"action"`
		Score    float64 `json:"score"`
		Required float64 `json:"required_score"`
		Symbols  map[string]struct {
			Score float64 `json:"score"`
		} `json:"symbols"`
		Messages json.RawMessage `json:"messages"`
	}
	if len(text) > maxRspamdReply {
		return summary.SpamResult{}, errors.New("the answer is too long")
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return summary.SpamResult{}, fmt.Errorf("the answer can't be read: %w", err)
	}
	if a.Action == nil {
		return summary.SpamResult{}, errors.New("the answer names no action")
	}
	// required_score is the score for rejection. By default, rspamd marks messages from less than
	// half of that on.
	o := summary.SpamResult{Score: clampPoints(a.Score), Threshold: clampPoints(a.Required), LenientThreshold: clampPoints(a.Required), StrictThreshold: clampPoints(a.Required) / 5}
	switch *a.Action {
	case "reject":
		o.Action = summary.ActionReject
	case "soft reject":
		o.Action = summary.ActionDefer
	case "add header", "rewrite subject", "quarantine", "discard": // no mail is dropped silently
		o.Action = summary.ActionJunk
	}
	for name, s := range a.Symbols {
		o.Reasons = append(o.Reasons, summary.SpamReason{Name: cleanSymbol(name), Points: clampPoints(s.Score)})
	}
	sortReasons(o.Reasons)
	var said struct {
		Text string `json:"smtp_message"`
	}
	if json.Unmarshal(a.Messages, &said) == nil { // an empty list if there are none
		o.Reply = summary.CleanText(said.Text, 200)
	}
	return o, nil
}

// sortReasons sorts reasons by the absolute value of their points, largest first.
func sortReasons(all []summary.SpamReason) {
	slices.SortFunc(all, func(a, b summary.SpamReason) int {
		return cmp.Or(cmp.Compare(math.Abs(b.Points), math.Abs(a.Points)), cmp.Compare(a.Name, b.Name))
	})
}

func clampPoints(f float64) float64 { return max(-maxPoints, min(f, maxPoints)) }

// cleanSymbol returns a name that is safe in a header field and as a word.
func cleanSymbol(s string) string {
	s = s[:min(len(s), maxSymbolName)]
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("_.-", r) {
			return r
		}
		return '_'
	}, s)
}

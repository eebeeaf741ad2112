// SPDX-License-Identifier: Apache-2.0

package api

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/web"
)

// The response header fields for limits: lists of items, each named by a string
// (draft-ietf-httpapi-ratelimit-headers-10, RFC 9651 §3.1).
const rateLimitPolicyHeader, rateLimitHeader = "RateLimit-Policy", "RateLimit"

// countRequest counts a request and adds the request limit to the response's header.
func (a *API) countRequest(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	gauges, err := a.Limits.CountRequest(r.Context(), outbound.KeyConsumer(p))
	addLimitHeaders(w.Header(), gauges)
	return err
}

// addSendLimitHeaders adds the send limits to a send's response. The headers are optional: if the
// limits can't be read, the response has none.
func (a *API) addSendLimitHeaders(w http.ResponseWriter, r *http.Request, p account.Principal) {
	gauges, err := a.Limits.Statuses(r.Context(), outbound.KeyConsumer(p))
	if err != nil {
		a.Log.WarnContext(r.Context(), "the limits could not be told", "request", web.RequestIDFromContext(r.Context()), "error", err)
	}
	addLimitHeaders(w.Header(), gauges)
}

// addLimitHeaders adds limits to the header. It spells the fields as in the draft, not in
// net/http's canonical form, for people who read responses.
func addLimitHeaders(h http.Header, gauges []quota.Status) {
	if len(gauges) == 0 {
		return
	}
	policy, left := []byte(strings.Join(h[rateLimitPolicyHeader], "")), []byte(strings.Join(h[rateLimitHeader], "")) //nolint:staticcheck // the spelling is meant
	for _, g := range gauges {
		name := g.Name
		if g.Key != 0 {
			name = "key_" + name
		}
		policy = appendLimitItem(policy, name)
		policy = appendLimitParam(policy, "q", g.Limit)
		policy = appendLimitParam(policy, "w", int64(g.Window/time.Second))
		left = appendLimitItem(left, name)
		left = appendLimitParam(left, "r", g.Remaining)
		if g.Reset > 0 {
			left = appendLimitParam(left, "t", int64(math.Ceil(g.Reset.Seconds())))
		}
	}
	h[rateLimitPolicyHeader], h[rateLimitHeader] = []string{string(policy)}, []string{string(left)}
}

func appendLimitItem(b []byte, name string) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	return strconv.AppendQuote(b, name)
}

func appendLimitParam(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(append(append(b, ';'), name...), '='), n, 10)
}

// rateLimitHeaders describes the limit headers for the document.
func rateLimitHeaders() map[string]*parameter {
	text := func(what, example string) *parameter {
		return &parameter{Description: what, Schema: &schema{Type: "string"}, Example: example}
	}
	return map[string]*parameter{
		rateLimitPolicyHeader: text("The limits that the request counts by: `q` in `w` seconds. Those whose names begin with `key_` are the key's own, the others the account's. Absent where there are none.",
			`"requests";q=20000;w=10, "sends_per_hour";q=1000000;w=3600`),
		rateLimitHeader: text("How much is left of each (`r`), and in how many seconds there is more (`t`).", `"requests";r=19999;t=1, "sends_per_hour";r=999999;t=1800`),
		"Retry-After":   {Description: "In how many seconds to come again.", Schema: &schema{Type: "integer"}, Example: 60},
	}
}

// headerRefs returns references to the document's header definitions.
func headerRefs(names ...string) map[string]*parameter {
	refs := map[string]*parameter{}
	for _, name := range names {
		refs[name] = &parameter{Ref: "#/components/headers/" + name}
	}
	return refs
}

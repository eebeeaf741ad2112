// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
)

// target is a URL taken apart.
type target struct {
	text  string // as it was given
	host  string // in ASCII, an IP address without brackets
	port  string
	plain bool // http
	// refused: it was taken once, and is no more by the rules of now.
	refused bool
}

// The words about a URL that can't be used.
const (
	whyURL       = "Give the full URL of the receiver, such as https://app.example.com/hooks."
	whyScheme    = "Deliveries are sent over https only."
	whyUserinfo  = "A URL with a user name or password is not taken: check the signature instead."
	whyFragment  = "A URL with a fragment (#…) is not taken: it would not be sent."
	whyPort      = "The port must be 80, 443, or from 1024 on."
	whyForbidden = "This address is not on the public Internet, so nothing is sent there."
	whyLeads     = "This name leads to no address on the public Internet, so nothing is sent there."
	whyPlain     = "Plain http is sent only to networks that the operator allows, and this name leads to none of them: use https."
)

// Site returns the scheme and host of a URL, for the audit log: the rest may be a
// secret. It is "" for what is no URL.
func Site(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// parse judges a URL. code is "" for one that can be used. Where a name leads
// to is known, and judged, at each attempt only.
func (h *Hooks) parse(text string) (t target, code, why string) {
	if t, code, why = form(text); code == "" {
		code, why = h.place(t)
	}
	return t, code, why
}

// form judges a URL by itself.
func form(text string) (t target, code, why string) {
	if len(text) > MaxURL {
		return t, "too_long", "A URL has at most " + strconv.Itoa(MaxURL) + " characters."
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Opaque != "" || strings.TrimSpace(text) != text {
		return t, "invalid_url", whyURL
	}
	t = target{text: text, plain: u.Scheme == "http", port: u.Port()}
	switch {
	case u.Scheme != "https" && !t.plain:
		return t, "invalid_url", whyURL
	case u.User != nil:
		return t, "userinfo_not_allowed", whyUserinfo
	case u.Fragment != "" || strings.Contains(text, "#"):
		return t, "fragment_not_allowed", whyFragment
	}
	if t.port == "" {
		t.port = "443"
		if t.plain {
			t.port = "80"
		}
	}
	if n, err := strconv.Atoi(t.port); err != nil || n > 65535 || n < 1024 && n != 80 && n != 443 {
		return t, "port_not_allowed", whyPort
	}
	t.host = u.Hostname()
	if egress.Literal(t.host) == nil {
		if t.host, err = address.Domain(t.host); err != nil {
			return t, "invalid_url", whyURL
		}
	}
	return t, "", ""
}

// place judges where a URL leads to, as far as it says so itself. Plain http
// only goes where the operator allows it: over the Internet anybody could read
// and change it.
func (h *Hooks) place(t target) (code, why string) {
	allow, literal := h.o.Dialer.Allow, egress.Literal(t.host)
	inside := slices.ContainsFunc(literal, func(a netip.Addr) bool { return egress.Within(a, allow) })
	switch {
	case t.plain && (len(allow) == 0 || literal != nil && !inside):
		return "https_required", whyScheme
	case literal != nil && !inside && !slices.ContainsFunc(literal, egress.Public):
		return "address_not_allowed", whyForbidden
	}
	return "", ""
}

// lookTime bounds how long the name in a new URL is looked up.
const lookTime = 5 * time.Second

// accept judges a URL that is given now: as parse does, and where its name leads
// to. The attempts judge that again, since names change. So a name that can't be
// looked up for the moment, or does not exist yet, is taken; plain http needs one
// that leads where it may go.
func (h *Hooks) accept(ctx context.Context, text string) (t target, code, why string) {
	if t, code, why = h.parse(text); code != "" || egress.Literal(t.host) != nil {
		return t, code, why
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	_, err := h.dialer(t).Addresses(ctx, t.host)
	switch {
	case t.plain && err != nil && !errors.Is(err, dns.ErrTemporary):
		return t, "https_required", whyPlain
	case errors.Is(err, egress.ErrRefused):
		return t, "address_not_allowed", whyLeads
	}
	return t, "", ""
}

// dialer opens the connections to a target.
func (h *Hooks) dialer(t target) *egress.Dialer {
	if !t.plain {
		return h.o.Dialer
	}
	inside := *h.o.Dialer
	inside.OnlyAllow = true
	return &inside
}

// checkKinds notes unknown kinds, and returns the others in the order of
// event.Kinds, or All alone.
func checkKinds(f *fault.Fields, kinds []string) []string {
	if len(kinds) == 0 {
		f.Add("events", "required", "Name at least one kind of event, or %q.", All)
	}
	if len(kinds) > 2*len(event.Kinds) {
		f.Add("events", "too_many", "Name each kind of event once.")
		return nil
	}
	for i, k := range kinds {
		if k != All && !slices.Contains(event.Kinds[:], k) {
			f.Add("events["+strconv.Itoa(i)+"]", "unknown_event", "The kinds of event are %s, and %s.", strings.Join(event.Kinds[:], ", "), All)
		}
	}
	if slices.Contains(kinds, All) {
		return []string{All}
	}
	return slices.DeleteFunc(slices.Clone(event.Kinds[:]), func(k string) bool { return !slices.Contains(kinds, k) })
}

func checkDescription(f *fault.Fields, s string) {
	if utf8.RuneCountInString(s) > MaxDescription {
		f.Add("description", "too_long", "A description has at most %d characters.", MaxDescription)
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		f.Add("description", "invalid_characters", "A description is one line of text.")
	}
}

// checkFilter notes ids that the account has nothing under, and returns the
// list in order, each once.
func checkFilter(ctx context.Context, f *fault.Fields, field string, account db.ID, ids []db.ID,
	owns func(ctx context.Context, account, id db.ID) (bool, error)) ([]db.ID, error) {
	if len(ids) > MaxFilter {
		f.Add(field, "too_many", "A filter has at most %d entries.", MaxFilter)
		return nil, nil
	}
	for i, id := range ids {
		ok, err := owns(ctx, account, id)
		if err != nil {
			return nil, err
		}
		if !ok {
			f.Add(field+"["+strconv.Itoa(i)+"]", "not_found", "Your account has nothing with this id.")
		}
	}
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

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

// target is a parsed webhook URL.
type target struct {
	raw       string // the URL as given
	host      string // in ASCII, an IP address without brackets
	port      string
	plainHTTP bool // the scheme is http
	// forbidden reports whether the URL was accepted earlier but violates the current rules.
	forbidden bool
}

// The messages about invalid URLs.
const (
	msgInvalidURL       = "Give the full URL of the receiver, such as https://app.example.com/hooks."
	msgHTTPSOnly        = "Deliveries are sent over https only."
	msgUserinfo         = "A URL with a user name or password is not taken: check the signature instead."
	msgFragment         = "A URL with a fragment (#…) is not taken: it would not be sent."
	msgPort             = "The port must be 80, 443, or from 1024 on."
	msgForbiddenAddress = "This address is not on the public Internet, so nothing is sent there."
	msgForbiddenName    = "This name leads to no address on the public Internet, so nothing is sent there."
	msgPlainHTTP        = "Plain http is sent only to networks that the operator allows, and this name leads to none of them: use https."
)

// Origin returns the scheme and host of a URL, for the audit log: the rest may be secret. It is ""
// for an invalid URL.
func Origin(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// parseURL parses and checks a URL. code is "" if it is valid. Only attempts check the addresses
// that its host name resolves to.
func (h *Service) parseURL(text string) (t target, code, why string) {
	if t, code, why = parseTarget(text); code == "" {
		code, why = h.checkAddress(t)
	}
	return t, code, why
}

// parseTarget parses and checks a URL without the operator's rules.
func parseTarget(text string) (t target, code, why string) {
	if len(text) > MaxURL {
		return t, "too_long", "A URL has at most " + strconv.Itoa(MaxURL) + " characters."
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Opaque != "" || strings.TrimSpace(text) != text {
		return t, "invalid_url", msgInvalidURL
	}
	t = target{raw: text, plainHTTP: u.Scheme == "http", port: u.Port()}
	switch {
	case u.Scheme != "https" && !t.plainHTTP:
		return t, "invalid_url", msgInvalidURL
	case u.User != nil:
		return t, "userinfo_not_allowed", msgUserinfo
	case u.Fragment != "" || strings.Contains(text, "#"):
		return t, "fragment_not_allowed", msgFragment
	}
	if t.port == "" {
		t.port = "443"
		if t.plainHTTP {
			t.port = "80"
		}
	}
	if n, err := strconv.Atoi(t.port); err != nil || n > 65535 || n < 1024 && n != 80 && n != 443 {
		return t, "port_not_allowed", msgPort
	}
	t.host = u.Hostname()
	if egress.LiteralAddrs(t.host) == nil {
		if t.host, err = address.ParseDomain(t.host); err != nil {
			return t, "invalid_url", msgInvalidURL
		}
	}
	return t, "", ""
}

// checkAddress checks an IP address in a URL, and whether plain http is allowed. Plain http may
// only go to networks that the operator allows: on the Internet anybody could read and change it.
func (h *Service) checkAddress(t target) (code, why string) {
	allow, literal := h.o.Dialer.AllowNets, egress.LiteralAddrs(t.host)
	inside := slices.ContainsFunc(literal, func(a netip.Addr) bool { return egress.InNetworks(a, allow) })
	switch {
	case t.plainHTTP && (len(allow) == 0 || literal != nil && !inside):
		return "https_required", msgHTTPSOnly
	case literal != nil && !inside && !slices.ContainsFunc(literal, egress.IsPublic):
		return "address_not_allowed", msgForbiddenAddress
	}
	return "", ""
}

// lookupTimeout is the timeout for looking up the host name of a new URL.
const lookupTimeout = 5 * time.Second

// checkURL checks a new URL: as parseURL does, and the addresses of its host name. Attempts check
// the addresses again, since DNS changes. So checkURL accepts a name that can't be looked up now or
// does not exist yet. Plain http requires a name that resolves to an allowed network.
func (h *Service) checkURL(ctx context.Context, text string) (t target, code, why string) {
	if t, code, why = h.parseURL(text); code != "" || egress.LiteralAddrs(t.host) != nil {
		return t, code, why
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	_, err := h.dialer(t).Addresses(ctx, t.host)
	switch {
	case t.plainHTTP && err != nil && !errors.Is(err, dns.ErrTemporary):
		return t, "https_required", msgPlainHTTP
	case errors.Is(err, egress.ErrNoAllowedAddr):
		return t, "address_not_allowed", msgForbiddenName
	}
	return t, "", ""
}

// dialer returns the dialer for connections to a target.
func (h *Service) dialer(t target) *egress.Dialer {
	if !t.plainHTTP {
		return h.o.Dialer
	}
	inside := *h.o.Dialer
	inside.AllowNetsOnly = true
	return &inside
}

// checkKinds adds an error for each unknown kind, and returns the others in the order of
// event.Kinds, or only AllKinds.
func checkKinds(f *fault.FieldErrors, kinds []string) []string {
	if len(kinds) == 0 {
		f.Add("events", "required", "Name at least one kind of event, or %q.", AllKinds)
	}
	if len(kinds) > 2*len(event.Kinds) {
		f.Add("events", "too_many", "Name each kind of event once.")
		return nil
	}
	for i, k := range kinds {
		if k != AllKinds && !slices.Contains(event.Kinds[:], k) {
			f.Add("events["+strconv.Itoa(i)+"]", "unknown_event", "The kinds of event are %s, and %s.", strings.Join(event.Kinds[:], ", "), AllKinds)
		}
	}
	if slices.Contains(kinds, AllKinds) {
		return []string{AllKinds}
	}
	return slices.DeleteFunc(slices.Clone(event.Kinds[:]), func(k string) bool { return !slices.Contains(kinds, k) })
}

func checkDescription(f *fault.FieldErrors, s string) {
	if utf8.RuneCountInString(s) > MaxDescription {
		f.Add("description", "too_long", "A description has at most %d characters.", MaxDescription)
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		f.Add("description", "invalid_characters", "A description is one line of text.")
	}
}

// checkFilter adds an error for each id that the account does not own, and returns the list sorted
// and without duplicates.
func checkFilter(ctx context.Context, f *fault.FieldErrors, field string, account db.ID, ids []db.ID,
	owns func(ctx context.Context, account, id db.ID) (bool, error)) ([]db.ID, error) {
	if len(ids) > MaxFilterIDs {
		f.Add(field, "too_many", "A filter has at most %d entries.", MaxFilterIDs)
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

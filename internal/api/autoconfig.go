// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/clientsetup"
)

// autoconfigHandler serves settings to mail clients that configure themselves, without a key. It
// reveals which domains are hosted, but not which addresses exist.
type autoconfigHandler struct {
	api *API
	*networkLimiter
}

var thunderbirdPaths = []string{"/mail/config-v1.1.xml", "/.well-known/autoconfig/mail/config-v1.1.xml"}

// AllowsCleartext reports whether a request may be answered without TLS. Thunderbird fetches its
// settings that way if a domain has no certificate.
func (*API) AllowsCleartext(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && slices.Contains(thunderbirdPaths, r.URL.Path)
}

func (a *API) autoconfigRoutes(r *router) {
	c := &autoconfigHandler{api: a, networkLimiter: a.newNetworkLimiter()}
	for _, path := range thunderbirdPaths {
		r.mux.HandleFunc("GET "+path, c.handle(c.thunderbird))
	}
	r.mux.HandleFunc("POST /autodiscover/autodiscover.xml", c.handle(c.outlook))
	for _, path := range []string{"/autodiscover/autodiscover.json", "/autodiscover/autodiscover.json/v1.0/{address}"} {
		r.mux.HandleFunc("GET "+path, c.handle(c.outlookJSON))
	}
}

func (c *autoconfigHandler) handle(f func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := c.allow(r)
		if err == nil {
			err = f(w, r)
		}
		if err != nil {
			c.api.writeProblem(w, r, err)
		}
	}
}

var errNotHosted = newProblem(http.StatusNotFound, "domain_not_hosted", "Mail of this domain is not hosted here.")

// hostedAddress parses an address and reports whether its domain is hosted here.
func (c *autoconfigHandler) hostedAddress(r *http.Request, text string) (a address.Address, ok bool, err error) {
	if a, err = address.Parse(text); err != nil {
		return a, false, nil //nolint:nilerr // what is no address is hosted nowhere
	}
	h, ok, err := c.api.Domains.FindHosted(r.Context(), a.Domain)
	return a, ok && !h.Suspended, err
}

// thunderbird takes the domain from the address, or from the request's host name.
func (c *autoconfigHandler) thunderbird(w http.ResponseWriter, r *http.Request) error {
	given := queryAddress(r, "emailaddress")
	if given == clientsetup.AddressPlaceholder { // the client has not filled in an address
		given = ""
	}
	text := given
	if text == "" {
		host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
		text = "anybody@" + strings.TrimPrefix(host, "autoconfig.")
	}
	who, ok, err := c.hostedAddress(r, text)
	if err != nil {
		return err
	}
	if !ok {
		return errNotHosted
	}
	username := ""
	if given != "" {
		username = who.String()
	}
	doc, err := c.api.ClientSetup.Autoconfig(who.Domain, username)
	if err != nil {
		return err
	}
	writeBody(w, http.StatusOK, "application/xml; charset=utf-8", doc)
	return nil
}

// queryAddress returns the address in a query parameter. It keeps a plus sign, although that means
// a space in queries: clients don't escape what users type.
func queryAddress(r *http.Request, name string) string {
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		key, value, _ := strings.Cut(part, "=")
		if !strings.EqualFold(key, name) {
			continue
		}
		if text, err := url.PathUnescape(value); err == nil {
			return strings.TrimSpace(text)
		}
	}
	return ""
}

// lowerAutodiscoverPath converts the path of an Autodiscover request to lower case, except for an
// address in it. Windows ignores case in paths, so clients send any.
func lowerAutodiscoverPath(r *http.Request) *http.Request {
	const all, json = "/autodiscover/", "/autodiscover/autodiscover.json/v1.0/"
	if len(r.URL.Path) < len(all) || !strings.EqualFold(r.URL.Path[:len(all)], all) {
		return r
	}
	lower := func(path string) string {
		if n := len(json); len(path) > n && strings.EqualFold(path[:n], json) {
			return json + path[n:]
		}
		return strings.ToLower(path)
	}
	to := r.WithContext(r.Context())
	at := *r.URL
	at.Path, at.RawPath = lower(at.Path), lower(at.RawPath)
	to.URL = &at
	return to
}

// outlook always responds with 200; the document reports errors.
func (c *autoconfigHandler) outlook(w http.ResponseWriter, r *http.Request) error {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // the server has its own limit, too
	var doc []byte
	q, err := clientsetup.ReadAutodiscoverRequest(r.Body)
	switch {
	case err != nil:
		doc, err = clientsetup.AutodiscoverError(clientsetup.InvalidRequest, "This is no request of Autodiscover.", time.Now())
	case !q.Supported():
		doc, err = clientsetup.AutodiscoverError(clientsetup.UnsupportedSchema, "There are settings for IMAP and SMTP only.", time.Now())
	default:
		who, ok, found := c.hostedAddress(r, q.Address)
		switch {
		case found != nil:
			return found
		case !ok:
			doc, err = clientsetup.AutodiscoverError(clientsetup.NoSuchAddress, "Mail of this domain is not hosted here.", time.Now())
		default:
			doc, err = c.api.ClientSetup.Autodiscover(who.String())
		}
	}
	if err != nil {
		return err
	}
	writeBody(w, http.StatusOK, "text/xml; charset=utf-8", doc)
	return nil
}

// autodiscoverError is the error format of Autodiscover version 2.
type autodiscoverError struct {
	Code    string `json:"ErrorCode"`
	Message string `json:"ErrorMessage"`
}

func (c *autoconfigHandler) outlookJSON(w http.ResponseWriter, r *http.Request) error {
	text := r.PathValue("address")
	if text == "" {
		text = queryAddress(r, "Email")
	}
	_, ok, err := c.hostedAddress(r, text)
	if err != nil {
		return err
	}
	if !ok {
		c.api.writeJSON(w, r, http.StatusNotFound, "application/json", autodiscoverError{"UserNotFound", "Mail of this domain is not hosted here."})
		return nil
	}
	to, ok := c.api.ClientSetup.AutodiscoverJSON(r.URL.Query().Get("Protocol"))
	if !ok {
		c.api.writeJSON(w, r, http.StatusBadRequest, "application/json", autodiscoverError{"InvalidProtocol", "The protocol offered is AutodiscoverV1."})
		return nil
	}
	c.api.writeJSON(w, r, http.StatusOK, "application/json", to)
	return nil
}

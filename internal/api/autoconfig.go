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

// autoconfig answers mail clients that set themselves up, without a key. It
// knows hosted domains only, and nothing of single addresses.
type autoconfig struct {
	api *API
	*keyless
}

var thunderbirdPaths = []string{"/mail/config-v1.1.xml", "/.well-known/autoconfig/mail/config-v1.1.xml"}

// AnswersInClear reports whether a request may be answered without TLS:
// Thunderbird asks for its settings that way where a domain has no certificate.
func AnswersInClear(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && slices.Contains(thunderbirdPaths, r.URL.Path)
}

func (a *API) autoconfigRoutes(r *router) {
	c := &autoconfig{api: a, keyless: a.keyless()}
	for _, path := range thunderbirdPaths {
		r.mux.HandleFunc("GET "+path, c.handle(c.thunderbird))
	}
	r.mux.HandleFunc("POST /autodiscover/autodiscover.xml", c.handle(c.outlook))
	for _, path := range []string{"/autodiscover/autodiscover.json", "/autodiscover/autodiscover.json/v1.0/{address}"} {
		r.mux.HandleFunc("GET "+path, c.handle(c.outlookJSON))
	}
}

func (c *autoconfig) handle(f func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := c.allow(r)
		if err == nil {
			err = f(w, r)
		}
		if err != nil {
			c.api.fail(w, r, err)
		}
	}
}

var errNotHosted = newProblem(http.StatusNotFound, "domain_not_hosted", "Mail of this domain is not hosted here.")

// hosted returns the domain of an address if it is hosted here.
func (c *autoconfig) hosted(r *http.Request, text string) (a address.Address, ok bool, err error) {
	if a, err = address.Parse(text); err != nil {
		return a, false, nil //nolint:nilerr // what is no address is hosted nowhere
	}
	h, ok, err := c.api.Domains.Hosted(r.Context(), a.Domain)
	return a, ok && !h.Suspended, err
}

// thunderbird takes the domain from the address, or from the name under which
// it is asked.
func (c *autoconfig) thunderbird(w http.ResponseWriter, r *http.Request) error {
	given := addressIn(r, "emailaddress")
	if given == clientsetup.AnyAddress { // the client has put in no address
		given = ""
	}
	text := given
	if text == "" {
		host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
		text = "anybody@" + strings.TrimPrefix(host, "autoconfig.")
	}
	who, ok, err := c.hosted(r, text)
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
	doc, err := c.api.Setup.Autoconfig(who.Domain, username)
	if err != nil {
		return err
	}
	writeText(w, http.StatusOK, "application/xml; charset=utf-8", doc)
	return nil
}

// addressIn returns the address in a query. A plus sign is one, although it means a
// blank in queries: clients put addresses in as their users type them.
func addressIn(r *http.Request, name string) string {
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

// anyCase writes the path of Autodiscover in lower case, but for an address in it:
// Windows knows no difference, and so clients make none.
func anyCase(r *http.Request) *http.Request {
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

// outlook always answers 200: what is wrong stands in the document.
func (c *autoconfig) outlook(w http.ResponseWriter, r *http.Request) error {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // the server has a bound of its own, too
	var doc []byte
	q, err := clientsetup.ReadQuestion(r.Body)
	switch {
	case err != nil:
		doc, err = clientsetup.AutodiscoverError(clientsetup.InvalidRequest, "This is no request of Autodiscover.", time.Now())
	case !q.Supported():
		doc, err = clientsetup.AutodiscoverError(clientsetup.UnsupportedSchema, "There are settings for IMAP and SMTP only.", time.Now())
	default:
		who, ok, found := c.hosted(r, q.Address)
		switch {
		case found != nil:
			return found
		case !ok:
			doc, err = clientsetup.AutodiscoverError(clientsetup.NoSuchAddress, "Mail of this domain is not hosted here.", time.Now())
		default:
			doc, err = c.api.Setup.Autodiscover(who.String())
		}
	}
	if err != nil {
		return err
	}
	writeText(w, http.StatusOK, "text/xml; charset=utf-8", doc)
	return nil
}

// notOffered is how the second version of Autodiscover says no.
type notOffered struct {
	Code    string `json:"ErrorCode"`
	Message string `json:"ErrorMessage"`
}

func (c *autoconfig) outlookJSON(w http.ResponseWriter, r *http.Request) error {
	text := r.PathValue("address")
	if text == "" {
		text = addressIn(r, "Email")
	}
	_, ok, err := c.hosted(r, text)
	if err != nil {
		return err
	}
	if !ok {
		c.api.write(w, r, http.StatusNotFound, "application/json", notOffered{"UserNotFound", "Mail of this domain is not hosted here."})
		return nil
	}
	to, ok := c.api.Setup.AutodiscoverJSON(r.URL.Query().Get("Protocol"))
	if !ok {
		c.api.write(w, r, http.StatusBadRequest, "application/json", notOffered{"InvalidProtocol", "The protocol offered is AutodiscoverV1."})
		return nil
	}
	c.api.write(w, r, http.StatusOK, "application/json", to)
	return nil
}

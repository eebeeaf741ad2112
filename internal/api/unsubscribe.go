// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/suppression"
)

// unsubscribeRequest is the JSON of outbound.Unsubscribe.
type unsubscribeRequest struct {
	URL    string `json:"url,omitempty" format:"uri" maxLength:"900" doc:"An https URL of yours that takes the one-click POST. When left out, the service hosts the link; the message then has exactly one recipient." example:"https://example.com/leave?who=42"`
	Mailto string `json:"mailto,omitempty" doc:"An address, or a mailto URI, where a mail unsubscribes; offered beside the URL. When left out beside a hosted link, the service offers an address of its own, which does what the link does." example:"leave@example.com"`
}

// maxUnsubscribeBody limits the body of a POST to an unsubscribe link, in bytes.
const maxUnsubscribeBody = 16 << 10

// unsubscribeHandler serves the hosted unsubscribe links at /u/TOKEN, for as long as any copy of
// the message may exist. People and mail clients use them: there is no key and no cookie, and every
// response is an HTML page.
type unsubscribeHandler struct {
	api *API
	*networkLimiter
}

func (a *API) unsubscribeRoutes(r *router) {
	u := &unsubscribeHandler{api: a, networkLimiter: a.newNetworkLimiter()}
	r.mux.HandleFunc("GET /u/{token}", u.handle(u.showConfirmation)) // HEAD, too
	r.mux.HandleFunc("POST /u/{token}", u.handle(u.unsubscribe))
}

// handle decodes the link in a request, within the limit of its network, and calls f.
func (u *unsubscribeHandler) handle(f func(w http.ResponseWriter, r *http.Request, k suppression.UnsubscribeLink) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := u.allow(r)
		if err == nil {
			if k, ok := u.api.Suppressions.ParseLink(r.PathValue("token")); ok {
				err = f(w, r, k)
			} else {
				err = fault.New(fault.NotFound, "not_found", "This link is not whole or not one of ours. Please take it from the mail once more.")
			}
		}
		if err != nil {
			u.writeErrorPage(w, r, err)
		}
	}
}

// showConfirmation asks for confirmation. It changes nothing, since mail clients and scanners
// follow links.
func (u *unsubscribeHandler) showConfirmation(w http.ResponseWriter, r *http.Request, k suppression.UnsubscribeLink) error {
	sender, err := u.senderName(r, k)
	if err != nil {
		return err
	}
	renderUnsubscribePage(w, http.StatusOK, unsubscribePage{Title: "Unsubscribe", Address: displayAddress(k), Before: "Do you want", After: "to get no more such mail from " + sender + "?", Ask: true})
	return nil
}

// unsubscribe unsubscribes the recipient: for the one-click POST of RFC 8058 §3.2, whose form may
// have either encoding, and for the page's button, which sends the same form.
func (u *unsubscribeHandler) unsubscribe(w http.ResponseWriter, r *http.Request, k suppression.UnsubscribeLink) error {
	if err := checkOneClick(w, r); err != nil {
		return err
	}
	sender, err := u.senderName(r, k)
	if err != nil {
		return err
	}
	if _, err := u.api.Outbox.Queue.RecordUnsubscribe(r.Context(), k, queue.UnsubscribeByLink); err != nil {
		return err
	}
	renderUnsubscribePage(w, http.StatusOK, unsubscribePage{Title: "You are unsubscribed", Address: displayAddress(k), After: "gets no more such mail from " + sender + "."})
	return nil
}

func checkOneClick(w http.ResponseWriter, r *http.Request) error {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // the server has its own limit, too
	r.Body = http.MaxBytesReader(w, r.Body, maxUnsubscribeBody)
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "application/x-www-form-urlencoded":
		err = r.ParseForm()
	case err == nil && kind == "multipart/form-data":
		err = r.ParseMultipartForm(maxUnsubscribeBody)
		if r.MultipartForm != nil {
			defer r.MultipartForm.RemoveAll() //nolint:errcheck // all of it is in memory
		}
	default:
		return newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "Nothing was changed. Please use the button of the page.")
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return err
	}
	if err != nil || !strings.EqualFold(r.PostForm.Get("List-Unsubscribe"), "One-Click") {
		return newProblem(http.StatusBadRequest, "not_one_click", "Nothing was changed. Please use the button of the page.")
	}
	return nil
}

// senderName returns the name of the message's sender, while that is known.
func (u *unsubscribeHandler) senderName(r *http.Request, k suppression.UnsubscribeLink) (string, error) {
	m, err := u.api.Outbox.Get(r.Context(), k.Account, k.Message)
	if fault.Is(err, fault.NotFound) {
		return "this sender", nil
	}
	return m.From, err
}

func displayAddress(k suppression.UnsubscribeLink) string {
	a, err := address.Parse(k.Address)
	if err != nil {
		return k.Address
	}
	return a.Display()
}

// writeErrorPage shows an error as a page.
func (u *unsubscribeHandler) writeErrorPage(w http.ResponseWriter, r *http.Request, err error) {
	p := u.api.toProblem(r.Context(), err)
	if p.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.retry))
	}
	title := "This did not work"
	if p.Status == http.StatusNotFound {
		title = "This link does not work"
	}
	renderUnsubscribePage(w, p.Status, unsubscribePage{Title: title, After: p.Detail})
}

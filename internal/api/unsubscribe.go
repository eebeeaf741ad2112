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
	"github.com/mailstead/mailstead/internal/suppression"
)

// unsubscribeRequest is outbound.Unsubscribe.
type unsubscribeRequest struct {
	URL    string `json:"url,omitempty" format:"uri" maxLength:"900" doc:"An https URL of yours that takes the one-click POST. When left out, the service hosts the link; the message then has exactly one recipient." example:"https://example.com/leave?who=42"`
	Mailto string `json:"mailto,omitempty" doc:"An address, or a mailto URI, where a mail unsubscribes; offered beside the URL. When left out beside a hosted link, the service offers an address of its own, which does what the link does." example:"leave@example.com"`
}

// maxUnsubscribe bounds the body of a POST to a link, in bytes.
const maxUnsubscribe = 16 << 10

// unsubscribing serves the links that the service hosts, at /u/TOKEN, for as
// long as mail is kept anywhere. It is for people and for mail programs: there
// is no key, no cookie, and every answer is a page.
type unsubscribing struct {
	api *API
	*keyless
}

func (a *API) unsubscribeRoutes(r *router) {
	u := &unsubscribing{api: a, keyless: a.keyless()}
	r.mux.HandleFunc("GET /u/{token}", u.handle(u.show)) // HEAD too
	r.mux.HandleFunc("POST /u/{token}", u.handle(u.take))
}

// handle opens the link of a request, if its network may ask.
func (u *unsubscribing) handle(f func(w http.ResponseWriter, r *http.Request, k suppression.Link) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := u.allow(r)
		if err == nil {
			if k, ok := u.api.Suppressions.Open(r.PathValue("token")); ok {
				err = f(w, r, k)
			} else {
				err = fault.New(fault.NotFound, "not_found", "This link is not whole or not one of ours. Please take it from the mail once more.")
			}
		}
		if err != nil {
			u.fail(w, r, err)
		}
	}
}

// show asks. It changes nothing: mail programs and scanners follow links.
func (u *unsubscribing) show(w http.ResponseWriter, r *http.Request, k suppression.Link) error {
	sender, err := u.sender(r, k)
	if err != nil {
		return err
	}
	render(w, http.StatusOK, leavePage{Title: "Unsubscribe", Address: display(k), Before: "Do you want", After: "to get no more such mail from " + sender + "?", Ask: true})
	return nil
}

// take unsubscribes: for the one click of RFC 8058 §3.2, whose form comes in
// either encoding, and for the button of the page, which sends the same.
func (u *unsubscribing) take(w http.ResponseWriter, r *http.Request, k suppression.Link) error {
	if err := oneClick(w, r); err != nil {
		return err
	}
	sender, err := u.sender(r, k)
	if err != nil {
		return err
	}
	if _, err := u.api.Outbox.Queue.Unsubscribed(r.Context(), k); err != nil {
		return err
	}
	render(w, http.StatusOK, leavePage{Title: "You are unsubscribed", Address: display(k), After: "gets no more such mail from " + sender + "."})
	return nil
}

func oneClick(w http.ResponseWriter, r *http.Request) error {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // the server has a bound of its own, too
	r.Body = http.MaxBytesReader(w, r.Body, maxUnsubscribe)
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "application/x-www-form-urlencoded":
		err = r.ParseForm()
	case err == nil && kind == "multipart/form-data":
		err = r.ParseMultipartForm(maxUnsubscribe)
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

// sender names who sent the mail, as long as it is known.
func (u *unsubscribing) sender(r *http.Request, k suppression.Link) (string, error) {
	m, err := u.api.Outbox.Get(r.Context(), k.Account, k.Message)
	if fault.Is(err, fault.NotFound) {
		return "this sender", nil
	}
	return m.From, err
}

func display(k suppression.Link) string {
	a, err := address.Parse(k.Address)
	if err != nil {
		return k.Address
	}
	return a.Display()
}

// fail shows what went wrong, in words.
func (u *unsubscribing) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := u.api.toProblem(r.Context(), err)
	if p.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.retry))
	}
	title := "This did not work"
	if p.Status == http.StatusNotFound {
		title = "This link does not work"
	}
	render(w, p.Status, leavePage{Title: title, After: p.Detail})
}

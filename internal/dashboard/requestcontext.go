// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/user"
)

// requestContext is one request of somebody.
type requestContext struct {
	d   *Dashboard
	w   http.ResponseWriter
	r   *http.Request
	ctx context.Context

	session      user.Session
	signedIn     bool // in is somebody, maybe halfway
	account      account.Account
	ownerMailbox db.ID               // the mailbox whose owner visits; 0: none does
	pendingEntry *audit.PendingEntry // the entry of the audit log for what is being done
	auditBegun   bool                // there was one

	form        url.Values        // what was entered
	fieldErrors map[string]string // what is wrong with it, by field
	formError   string            // what is wrong as a whole
}

func (v *requestContext) requestID() string { return v.w.Header().Get("X-Request-Id") }

// isScript reports whether a script of ours asks, for a part of a page.
func (v *requestContext) isScript() bool { return v.r.Header.Get("HX-Request") != "" }

// isOperator reports whether the visitor is an operator of the service.
func (v *requestContext) isOperator() bool { return v.session.Account == account.OperatorAccount }

// pathID reads an id of the path. One that is none belongs to nothing.
func (v *requestContext) pathID(name string) (db.ID, error) {
	id, err := db.ParseID(v.r.PathValue(name))
	if err != nil {
		return 0, notFound()
	}
	return id, nil
}

// pageSize reads which page of a list is asked for.
func (v *requestContext) listPage() db.Page {
	p := db.Page{Limit: db.DefaultPageSize}
	p.After, _ = db.ParseID(v.r.URL.Query().Get("after"))
	p.Before, _ = db.ParseID(v.r.URL.Query().Get("before"))
	return p
}

// readForm reads what was entered. What comes of it has no deadline.
func (v *requestContext) readForm() error {
	var tooBig *http.MaxBytesError
	err := v.r.ParseForm()
	if err == nil && strings.HasPrefix(v.r.Header.Get("Content-Type"), "multipart/form-data") {
		err = v.r.ParseMultipartForm(maxForm)
	}
	if err == nil { // what is no form, or stands behind one, would be waited for after the answer
		_, err = io.Copy(io.Discard, v.r.Body)
	}
	if errors.As(err, &tooBig) {
		return fault.New(fault.TooLarge, "form_too_large", "This is more than the %s that this form may have. Nothing was done.", formatSize(tooBig.Limit))
	}
	if err != nil {
		return badForm()
	}
	_ = http.NewResponseController(v.w).SetReadDeadline(time.Time{})
	v.form = v.r.PostForm
	return nil
}

func badForm() error {
	return fault.New(fault.Invalid, "bad_form", "The form could not be read. Go back and try again.")
}

// formText is a field as it was entered, without blanks around it.
func (v *requestContext) formText(field string) string { return strings.TrimSpace(v.form.Get(field)) }

// formInt reads a field as a whole number; what is none is a fault of it.
func (v *requestContext) formInt(field string) (int, error) {
	n, err := strconv.Atoi(v.formText(field))
	if err != nil {
		var bad fault.FieldErrors
		bad.Add(field, "invalid", "Give a whole number.")
		return 0, bad.Err()
	}
	return n, nil
}

// redisplayForm shows a form once more, with what is wrong with what was entered. An
// error that says nothing about it is returned.
func (v *requestContext) redisplayForm(err error, form view) error {
	if form == nil || !v.setFormErrors(err) {
		return err
	}
	p, viewErr := form(v)
	if viewErr != nil {
		return viewErr
	}
	if !p.Part { // scripts put only answers of success in
		p.Status, _ = httpStatus(fault.KindOf(err))
	}
	v.setRetryAfter(err)
	return v.showPage(p)
}

// setFormErrors takes what is wrong with what was entered, to be shown beside it; false
// if the error is not about that.
func (v *requestContext) setFormErrors(err error) bool {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind == fault.Internal || f.Kind == fault.NotFound || f.Code == codeWrongOwner && !v.isScript() {
		return false
	}
	v.fieldErrors = map[string]string{}
	for _, field := range f.Fields {
		name := field.Path
		if at := strings.IndexAny(name, ".["); at > 0 {
			name = name[:at]
		}
		if v.fieldErrors[name] == "" {
			v.fieldErrors[name] = field.Message
		}
	}
	v.formError = f.Message
	return true
}

// readSearch reads what a page is asked to look for, so that its fields show it.
func (v *requestContext) readSearch() url.Values {
	v.form = v.r.URL.Query()
	return v.form
}

// finish notes what was done and goes on.
func (v *requestContext) finish(did actionResult) error {
	switch {
	case v.auditBegun:
		if err := v.pendingEntry.Done(v.ctx, did.Summary, ""); err != nil {
			return err
		}
	case did.Summary != "" && (v.signedIn && !v.session.NeedsSecondFactor || v.ownerMailbox != 0):
		// It is done, whoever gives up waiting.
		if err := v.d.Audit.Write(context.WithoutCancel(v.ctx), v.auditEntry(did.Summary)); err != nil {
			return err
		}
	}
	if did.Customer != 0 {
		if err := v.auditForCustomer(did); err != nil {
			return err
		}
	}
	if did.Respond != nil {
		return did.Respond()
	}
	if did.Page != nil {
		return v.showPage(*did.Page)
	}
	if did.Summary != "" {
		v.setCookie("told", base64.RawURLEncoding.EncodeToString([]byte(did.Summary)), time.Minute)
	}
	v.redirect(did.RedirectTo)
	return nil
}

// takeNotice is what the act before this page did. It is said once.
func (v *requestContext) takeNotice() string {
	c, err := v.r.Cookie(v.cookieName("told"))
	if err != nil {
		return ""
	}
	v.setCookie("told", "", -1)
	text, _ := base64.RawURLEncoding.DecodeString(c.Value)
	return string(text)
}

// cookieName is the name of a cookie: one that only TLS brings can't be planted by
// others of the same domain.
func (v *requestContext) cookieName(name string) string {
	if v.d.isSecure(v.r) {
		return "__Host-" + name
	}
	return name
}

// setCookie sets a cookie that scripts and other sites don't get.
func (v *requestContext) setCookie(name, value string, life time.Duration) {
	http.SetCookie(v.w, &http.Cookie{
		Name: v.cookieName(name), Value: value, Path: "/", MaxAge: int(life / time.Second), HttpOnly: true, Secure: v.d.isSecure(v.r), SameSite: http.SameSiteLaxMode,
	})
}

// pageData is what templates see.
type pageData struct {
	page
	Known    bool // somebody has signed in
	User     user.User
	Role     user.Role
	Mail     bool // may read mail
	Account  account.Account
	Operates bool
	Path     string // of this page, with its query
	Theme    string // light or dark; "" as the system has it
	Told     string
	Alert    string
	Wrong    map[string]string
	Form     url.Values
	Host     string
	Dev      bool
	Sandbox  bool // there is one
	Version  string
	Now      time.Time
}

// May reports whether the visitor can change things.
func (s pageData) May() bool { return s.Known && s.Role != user.RoleReader }

// Owns reports whether the visitor is an owner of the account.
func (s pageData) Owns() bool { return s.Known && s.Role == user.RoleOwner }

// showPage writes a page. It is made whole before its first byte is sent.
func (v *requestContext) showPage(p page) error {
	in := v.signedIn && !v.session.NeedsSecondFactor
	s := pageData{
		page: p, Known: in && v.account.ID != 0 && p.Owner == "", User: v.session.User, Role: v.session.Role, Mail: v.session.ReadsMail, Account: v.account, Operates: in && v.isOperator(), Path: v.r.URL.RequestURI(),
		Alert: v.formError, Wrong: v.fieldErrors, Form: v.form, Host: v.d.Host, Dev: v.d.Dev, Sandbox: v.d.SandboxOutbox != nil, Version: v.d.Version, Now: v.d.Now(),
	}
	if c, err := v.r.Cookie(v.cookieName("theme")); err == nil && (c.Value == "light" || c.Value == "dark") {
		s.Theme = c.Value
	}
	if !p.Part {
		s.Told = v.takeNotice()
	}
	var out bytes.Buffer
	if err := v.d.renderer.render(&out, s); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if p.Status != 0 {
		v.w.WriteHeader(p.Status)
	}
	_, _ = v.w.Write(addFormOwner(out.Bytes(), v.formOwner())) // whoever has gone needs no answer
	return nil
}

// encodeQuery makes the query of a URL.
func encodeQuery(pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q.Encode()
}

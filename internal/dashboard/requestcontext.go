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
	"github.com/mailstead/mailstead/internal/bytesize"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/user"
	"github.com/mailstead/mailstead/internal/web"
)

// requestContext is a request with its session and form.
type requestContext struct {
	d   *Dashboard
	w   http.ResponseWriter
	r   *http.Request
	ctx context.Context

	session      user.Session
	signedIn     bool // whether there is a session, possibly before the second factor
	account      account.Account
	ownerMailbox db.ID               // mailbox whose owner is signed in; 0 for none
	pendingEntry *audit.PendingEntry // audit log entry of the current action
	auditBegun   bool                // whether an entry was begun

	form        url.Values        // submitted values
	fieldErrors map[string]string // errors by field
	formError   string            // error of the whole form
}

func (v *requestContext) requestID() string { return web.RequestIDFromContext(v.ctx) }

// isScript reports whether a script of the pages makes the request, for a part of a page.
func (v *requestContext) isScript() bool { return v.r.Header.Get("HX-Request") != "" }

// isOperator reports whether the user is an operator of the service.
func (v *requestContext) isOperator() bool { return v.session.Account == account.OperatorAccount }

// pathID parses an id in the path. An invalid id is a not-found error.
func (v *requestContext) pathID(name string) (db.ID, error) {
	id, err := db.ParseID(v.r.PathValue(name))
	if err != nil {
		return 0, notFound()
	}
	return id, nil
}

// listPage returns the requested page of a list.
func (v *requestContext) listPage() db.Page {
	p := db.Page{Limit: db.DefaultPageSize}
	p.After, _ = db.ParseID(v.r.URL.Query().Get("after"))
	p.Before, _ = db.ParseID(v.r.URL.Query().Get("before"))
	return p
}

// readForm reads the submitted form. After that, the request has no read deadline.
func (v *requestContext) readForm() error {
	var tooBig *http.MaxBytesError
	err := v.r.ParseForm()
	if err == nil && strings.HasPrefix(v.r.Header.Get("Content-Type"), "multipart/form-data") {
		err = v.r.ParseMultipartForm(maxForm)
	}
	if err == nil { // otherwise the server would read the rest of the body after the response
		_, err = io.Copy(io.Discard, v.r.Body)
	}
	if errors.As(err, &tooBig) {
		return fault.New(fault.TooLarge, "form_too_large", "This is more than the %s that this form may have. Nothing was done.", bytesize.Format(tooBig.Limit))
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

// formText returns a field's value without surrounding white space.
func (v *requestContext) formText(field string) string { return strings.TrimSpace(v.form.Get(field)) }

// formInt parses a field as an integer; a fault names the field.
func (v *requestContext) formInt(field string) (int, error) {
	n, err := strconv.Atoi(v.formText(field))
	if err != nil {
		var bad fault.FieldErrors
		bad.Add(field, "invalid", "Give a whole number.")
		return 0, bad.Err()
	}
	return n, nil
}

// redisplayForm shows a form again with its values and errors. It returns an error that is not
// about the form.
func (v *requestContext) redisplayForm(err error, form view) error {
	if form == nil || !v.setFormErrors(err) {
		return err
	}
	p, viewErr := form(v)
	if viewErr != nil {
		return viewErr
	}
	if !p.Part { // scripts insert only successful responses
		p.Status = web.Status(fault.KindOf(err))
	}
	web.SetRetryAfter(v.w, err)
	return v.showPage(p)
}

// setFormErrors stores the form's errors to be shown next to the fields. It returns false if the
// error is not about the form.
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

// readSearch returns the search parameters, and keeps them so that the fields show them.
func (v *requestContext) readSearch() url.Values {
	v.form = v.r.URL.Query()
	return v.form
}

// finish records the action in the audit log and redirects.
func (v *requestContext) finish(did actionResult) error {
	switch {
	case v.auditBegun:
		if err := v.pendingEntry.Done(v.ctx, did.Summary, ""); err != nil {
			return err
		}
	case did.Summary != "" && (v.signedIn && !v.session.NeedsSecondFactor || v.ownerMailbox != 0):
		// The action is done, even if the browser has disconnected.
		if err := v.d.Audit.Write(context.WithoutCancel(v.ctx), v.auditEntry(did.Summary)); err != nil {
			return err
		}
	}
	if did.Customer != 0 {
		if err := v.d.Audit.WriteForCustomer(v.ctx, did.Customer, v.r.Pattern, did.Summary); err != nil {
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

// takeNotice returns the message of the previous action and clears it.
func (v *requestContext) takeNotice() string {
	c, err := v.r.Cookie(v.cookieName("told"))
	if err != nil {
		return ""
	}
	v.setCookie("told", "", -1)
	text, _ := base64.RawURLEncoding.DecodeString(c.Value)
	return string(text)
}

// cookieName returns the full name of a cookie. Its prefix keeps other hosts of the same domain
// from setting it; it requires TLS.
func (v *requestContext) cookieName(name string) string {
	if v.d.isSecure(v.r) {
		return "__Host-" + name
	}
	return name
}

// setCookie sets a cookie that scripts and other sites can't read.
func (v *requestContext) setCookie(name, value string, life time.Duration) {
	http.SetCookie(v.w, &http.Cookie{
		Name: v.cookieName(name), Value: value, Path: "/", MaxAge: int(life / time.Second), HttpOnly: true, Secure: v.d.isSecure(v.r), SameSite: http.SameSiteLaxMode,
	})
}

// pageData is the data of templates.
type pageData struct {
	page
	Known    bool // whether a user has signed in
	User     user.User
	Role     user.Role
	Mail     bool // whether the user may read mail
	Account  account.Account
	Operates bool
	Path     string // of this page, with its query
	Theme    string // light or dark; "" for the system's setting
	Told     string
	Alert    string
	Wrong    map[string]string
	Form     url.Values
	Host     string
	Dev      bool
	Sandbox  bool // whether the sandbox runs
	Version  string
	Now      time.Time
}

// May reports whether the user can change things.
func (s pageData) May() bool { return s.Known && s.Role != user.RoleReader }

// Owns reports whether the user is an owner of the account.
func (s pageData) Owns() bool { return s.Known && s.Role == user.RoleOwner }

// showPage writes a page. It renders the whole page before it sends the first byte.
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
	_, _ = v.w.Write(addFormOwner(out.Bytes(), v.signedInOwner())) // the client may have disconnected
	return nil
}

// encodeQuery encodes the query of a URL.
func encodeQuery(pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q.Encode()
}

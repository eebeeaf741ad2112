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

// visit is one request of somebody.
type visit struct {
	d   *Dashboard
	w   http.ResponseWriter
	r   *http.Request
	ctx context.Context

	in      user.Session
	known   bool // in is somebody, maybe halfway
	account account.Account
	owner   db.ID          // the mailbox whose owner visits; 0: none does
	pending *audit.Pending // the entry of the audit log for what is being done
	begun   bool           // there was one

	form  url.Values        // what was entered
	wrong map[string]string // what is wrong with it, by field
	alert string            // what is wrong as a whole
}

func (v *visit) requestID() string { return v.w.Header().Get("X-Request-Id") }

// scripted reports whether a script of ours asks, for a part of a page.
func (v *visit) scripted() bool { return v.r.Header.Get("HX-Request") != "" }

// operates reports whether the visitor is an operator of the service.
func (v *visit) operates() bool { return v.in.Account == account.Operators }

// id reads an id of the path. One that is none belongs to nothing.
func (v *visit) id(name string) (db.ID, error) {
	id, err := db.ParseID(v.r.PathValue(name))
	if err != nil {
		return 0, notFound()
	}
	return id, nil
}

// pageOf reads which page of a list is asked for.
func (v *visit) pageOf() db.Page {
	p := db.Page{Limit: db.DefaultPage}
	p.After, _ = db.ParseID(v.r.URL.Query().Get("after"))
	p.Before, _ = db.ParseID(v.r.URL.Query().Get("before"))
	return p
}

// readForm reads what was entered. What comes of it has no deadline.
func (v *visit) readForm() error {
	var tooBig *http.MaxBytesError
	err := v.r.ParseForm()
	if err == nil && strings.HasPrefix(v.r.Header.Get("Content-Type"), "multipart/form-data") {
		err = v.r.ParseMultipartForm(maxForm)
	}
	if err == nil { // what is no form, or stands behind one, would be waited for after the answer
		_, err = io.Copy(io.Discard, v.r.Body)
	}
	if errors.As(err, &tooBig) {
		return fault.New(fault.TooLarge, "form_too_large", "This is more than the %s that this form may have. Nothing was done.", size(tooBig.Limit))
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

// text is a field as it was entered, without blanks around it.
func (v *visit) text(field string) string { return strings.TrimSpace(v.form.Get(field)) }

// number reads a field as a whole number; what is none is a fault of it.
func (v *visit) number(field string) (int, error) {
	n, err := strconv.Atoi(v.text(field))
	if err != nil {
		var bad fault.Fields
		bad.Add(field, "invalid", "Give a whole number.")
		return 0, bad.Err()
	}
	return n, nil
}

// again shows a form once more, with what is wrong with what was entered. An
// error that says nothing about it is returned.
func (v *visit) again(err error, form view) error {
	if form == nil || !v.mark(err) {
		return err
	}
	p, viewErr := form(v)
	if viewErr != nil {
		return viewErr
	}
	if !p.Part { // scripts put only answers of success in
		p.Status, _ = status(fault.KindOf(err))
	}
	v.retryAfter(err)
	return v.show(p)
}

// mark takes what is wrong with what was entered, to be shown beside it; false
// if the error is not about that.
func (v *visit) mark(err error) bool {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind == fault.Internal || f.Kind == fault.NotFound || f.Code == codeElsewhere && !v.scripted() {
		return false
	}
	v.wrong = map[string]string{}
	for _, field := range f.Fields {
		name := field.Field
		if at := strings.IndexAny(name, ".["); at > 0 {
			name = name[:at]
		}
		if v.wrong[name] == "" {
			v.wrong[name] = field.Message
		}
	}
	v.alert = f.Message
	return true
}

// searched reads what a page is asked to look for, so that its fields show it.
func (v *visit) searched() url.Values {
	v.form = v.r.URL.Query()
	return v.form
}

// done notes what was done and goes on.
func (v *visit) done(did done) error {
	switch {
	case v.begun:
		if err := v.pending.Done(v.ctx, did.Told, ""); err != nil {
			return err
		}
	case did.Told != "" && (v.known && !v.in.Halfway || v.owner != 0):
		// It is done, whoever gives up waiting.
		if err := v.d.Audit.Write(context.WithoutCancel(v.ctx), v.entry(did.Told)); err != nil {
			return err
		}
	}
	if did.Customer != 0 {
		if err := v.tellCustomer(did); err != nil {
			return err
		}
	}
	if did.Give != nil {
		return did.Give()
	}
	if did.Show != nil {
		return v.show(*did.Show)
	}
	if did.Told != "" {
		v.set("told", base64.RawURLEncoding.EncodeToString([]byte(did.Told)), time.Minute)
	}
	v.redirect(did.To)
	return nil
}

// told is what the act before this page did. It is said once.
func (v *visit) told() string {
	c, err := v.r.Cookie(v.cookie("told"))
	if err != nil {
		return ""
	}
	v.set("told", "", -1)
	text, _ := base64.RawURLEncoding.DecodeString(c.Value)
	return string(text)
}

// cookie is the name of a cookie: one that only TLS brings can't be planted by
// others of the same domain.
func (v *visit) cookie(name string) string {
	if v.d.encrypted(v.r) {
		return "__Host-" + name
	}
	return name
}

// set sets a cookie that scripts and other sites don't get.
func (v *visit) set(name, value string, life time.Duration) {
	http.SetCookie(v.w, &http.Cookie{
		Name: v.cookie(name), Value: value, Path: "/", MaxAge: int(life / time.Second), HttpOnly: true, Secure: v.d.encrypted(v.r), SameSite: http.SameSiteLaxMode,
	})
}

// screen is what templates see.
type screen struct {
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
func (s screen) May() bool { return s.Known && s.Role != user.Reader }

// Owns reports whether the visitor is an owner of the account.
func (s screen) Owns() bool { return s.Known && s.Role == user.Owner }

// show writes a page. It is made whole before its first byte is sent.
func (v *visit) show(p page) error {
	in := v.known && !v.in.Halfway
	s := screen{
		page: p, Known: in && v.account.ID != 0 && p.Owner == "", User: v.in.User, Role: v.in.Role, Mail: v.in.Mail, Account: v.account, Operates: in && v.operates(), Path: v.r.URL.RequestURI(),
		Alert: v.alert, Wrong: v.wrong, Form: v.form, Host: v.d.Host, Dev: v.d.Dev, Sandbox: v.d.Captured != nil, Version: v.d.Version, Now: v.d.Now(),
	}
	if c, err := v.r.Cookie(v.cookie("theme")); err == nil && (c.Value == "light" || c.Value == "dark") {
		s.Theme = c.Value
	}
	if !p.Part {
		s.Told = v.told()
	}
	var out bytes.Buffer
	if err := v.d.looks.render(&out, s); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if p.Status != 0 {
		v.w.WriteHeader(p.Status)
	}
	_, _ = v.w.Write(forWhom(out.Bytes(), v.whose())) // whoever has gone needs no answer
	return nil
}

// query makes the query of a URL.
func query(pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q.Encode()
}

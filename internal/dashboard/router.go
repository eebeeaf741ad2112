// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/user"
)

// page is what a view shows.
type page struct {
	Template string // its file, without the ending
	Title    string
	Section  string // which entry of the navigation it belongs to
	Owner    string // the mailbox whose owner sees it; "" for pages of the dashboard
	Open     bool   // for readers who have not signed in: with a frame, too
	Part     bool   // a part of a page, which a script asked for: no frame around it
	Status   int    // 0 is 200
	Data     any
}

// actionResult is what an act did.
type actionResult struct {
	RedirectTo string // where it goes on
	Summary    string // what was done, in a sentence: for the person and for the audit log
	Page       *page  // shown instead of going on, for what is seen once, such as a new key
	// Customer is the account whose activity tells it, too: what an operator did with it.
	Customer db.ID
	// Respond answers instead of going on, for what is downloaded once.
	Respond func() error
}

type (
	view   func(v *requestContext) (page, error)
	action func(v *requestContext) (actionResult, error)
)

// permission is what somebody must be allowed to do.
type permission int

const (
	permPublic   permission = iota // no need to sign in
	permRead                       // any member of the account
	permWrite                      // members, but not readers
	permOwner                      // owners of the account
	permOperator                   // of the service

	// permReadMail is needed beside one of these: the right to read mail.
	permReadMail permission = 1 << 8
)

// router takes the routes. Views need the right to read and acts that to work,
// unless said otherwise.
type router struct {
	d      *Dashboard
	mux    *http.ServeMux
	routes []Route
}

// Route is one of the dashboard's.
type Route struct {
	Method, Path       string
	RequiresSignIn     bool // only for people who have signed in
	RequiresMailAccess bool // only for those who may read mail
}

func (r *router) register(method string, need permission, path string, f http.HandlerFunc) {
	r.routes = append(r.routes, Route{method, path, need != permPublic, need&permReadMail != 0})
	r.mux.HandleFunc(method+" "+path, f)
}

// view enters a page.
func (r *router) view(path string, f view) { r.viewFor(permRead, path, f) }

func (r *router) viewFor(need permission, path string, f view) {
	r.register("GET", need, path, func(w http.ResponseWriter, req *http.Request) {
		r.serve(w, req, need, func(v *requestContext) error {
			p, err := f(v)
			if err != nil {
				return err
			}
			return v.showPage(p)
		})
	})
}

// action enters what a form does. form is the view that has the form: it is shown
// again, with what was entered and what is wrong with it.
func (r *router) action(path string, f action, form view) { r.actionFor(permWrite, path, f, form) }

func (r *router) actionFor(need permission, path string, f action, form view) {
	r.register("POST", need, path, func(w http.ResponseWriter, req *http.Request) {
		r.serve(w, req, need, func(v *requestContext) error {
			err := v.readForm()
			if err != nil {
				return err
			}
			var did actionResult
			if need != permPublic && !v.isPersonal() {
				err = v.checkFormOwner(v.form.Get(formOwnerField))
			}
			if err == nil && need != permPublic {
				err = v.beginAudit()
			}
			if err == nil {
				did, err = f(v)
			}
			if err != nil {
				v.abortAudit(err)
				return v.redisplayForm(err, form)
			}
			return v.finish(did)
		})
	})
}

// upload enters what a form with a file does. f reads the form itself, as a
// stream of at most so many bytes.
func (r *router) upload(path string, most int64, f action, form view) {
	r.register("POST", permWrite, path, func(w http.ResponseWriter, req *http.Request) {
		r.serveLimited(most, w, req, permWrite, func(v *requestContext) error {
			var did actionResult
			err := v.beginAudit()
			if err == nil {
				did, err = f(v)
			}
			if err != nil {
				v.abortAudit(err)
				return v.redisplayForm(err, form)
			}
			return v.finish(did)
		})
	})
}

// redirectForms leads who asks for the address of an act, as the browser shows it above a
// form with an error, to the page that it belongs to.
func (r *router) redirectForms() {
	pages := map[string]bool{"/": true}
	for _, one := range r.routes {
		pages[one.Path] = pages[one.Path] || one.Method == "GET"
	}
	for _, one := range r.routes {
		up := 0
		for at := one.Path; !pages[at]; at = path.Dir(at) {
			up++
		}
		if up == 0 {
			continue
		}
		r.mux.HandleFunc("GET "+one.Path, func(w http.ResponseWriter, req *http.Request) {
			to := req.URL.EscapedPath()
			for range up {
				to = path.Dir(to)
			}
			http.Redirect(w, req, to, http.StatusSeeOther)
		})
	}
}

// download enters a download.
func (r *router) download(path string, f func(v *requestContext) error) {
	r.downloadFor(permRead, path, f)
}

func (r *router) downloadFor(need permission, path string, f func(v *requestContext) error) {
	r.register("GET", need, path, func(w http.ResponseWriter, req *http.Request) { r.serve(w, req, need, f) })
}

// serve finds out who visits, and answers for errors and panics.
func (r *router) serve(w http.ResponseWriter, req *http.Request, need permission, f func(*requestContext) error) {
	if need != permPublic {
		r.serveLimited(maxForm, w, req, need, f)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(publicReadTimeout)) // the server has a bound of its own, too
	leave, ok := r.d.publicLimiter.Acquire(clientAddr(req))
	if !ok { // a page would be one more
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Too many requests at the same time. Try again in a moment.", http.StatusTooManyRequests)
		return
	}
	defer leave()
	most := int64(maxPublicForm)
	if _, owner := (&requestContext{d: r.d, r: req}).ownerToken(); owner {
		most = maxOwnerForm
	}
	r.serveLimited(most, w, req, need, f)
}

// serveLimited is serve for requests with bodies of at most so many bytes.
func (r *router) serveLimited(most int64, w http.ResponseWriter, req *http.Request, need permission, f func(*requestContext) error) {
	req.Body = http.MaxBytesReader(w, req.Body, most)
	v := &requestContext{d: r.d, w: w, r: req, ctx: req.Context()}
	defer func() {
		if x := recover(); x != nil {
			if x == http.ErrAbortHandler { //nolint:errorlint // a sentinel value
				panic(x)
			}
			r.d.Log.ErrorContext(v.ctx, "panic", "request", v.requestID(), slog.Any("value", x), "stack", string(debug.Stack()))
			v.showError(errors.New("panic"))
		}
	}()
	err := v.authorize(need)
	if errors.Is(err, errSignInRequired) {
		v.redirectToSignIn()
		return
	}
	if err == nil {
		err = f(v)
	}
	if err != nil && !errors.Is(err, errResponded) {
		v.showError(err)
	}
}

// serveNotFound answers for paths that are no page.
func (r *router) serveNotFound(w http.ResponseWriter, req *http.Request) {
	r.serve(w, req, permPublic, func(*requestContext) error { return notFound() })
}

func notFound() error { return fault.New(fault.NotFound, "not_found", "There is no such page.") }

// errResponded says that a view has answered by itself.
var errResponded = errors.New("answered")

// errSignInRequired says that a page is for people who have signed in.
var errSignInRequired = errors.New("not signed in")

// authorize finds out who visits, and whether that is enough.
func (v *requestContext) authorize(need permission) error {
	if c, err := v.r.Cookie(v.cookieName("session")); err == nil {
		in, err := v.d.Users.FindSession(v.ctx, c.Value)
		if err != nil && !fault.Is(err, fault.Unauthenticated) {
			return err
		}
		v.session, v.signedIn = in, err == nil
	}
	if v.signedIn && !v.session.NeedsSecondFactor {
		var err error
		if v.account, err = v.d.Accounts.Get(v.ctx, v.session.Account); err != nil {
			return err
		}
	} else if need != permPublic {
		return v.signedOutError()
	}
	may := need&permReadMail == 0 || v.session.ReadsMail
	switch need &^= permReadMail; {
	case need == permPublic:
	case v.account.Status == account.StatusSuspended && !v.isPersonal(): // from there one gets to others
		return fault.New(fault.Denied, "account_suspended", "This account is suspended. Ask the operator of the service.")
	case need == permWrite && v.session.Role == user.RoleReader,
		need == permOwner && v.session.Role != user.RoleOwner:
		return fault.New(fault.Denied, "role", "Your role does not allow that. Ask an owner of the account.")
	case !may:
		return errMailAccess
	case need == permOperator && !v.isOperator():
		return notFound()
	case need == permOperator && v.session.Role == user.RoleReader && v.r.Method != http.MethodGet:
		return fault.New(fault.Denied, "role", "Your role does not allow that. Ask an owner of the account.")
	}
	return nil
}

// errMailAccess is what people are told who may not read mail.
var errMailAccess = fault.New(fault.Denied, "mail", "You may not read mail of this account. Ask an owner to allow it on the page People.")

// isPersonal reports whether a path is about the person, whichever account is looked at.
func (v *requestContext) isPersonal() bool {
	return strings.HasPrefix(v.r.URL.Path, "/profile") || isSecretPath(v.r)
}

// signedOutError is what is told to who is not signed in, or no longer. A form is not led
// away from: what was entered would be lost, and a browser can send it again.
func (v *requestContext) signedOutError() error {
	if v.r.Method != http.MethodPost || v.isScript() {
		return errSignInRequired
	}
	return fault.New(fault.Unauthenticated, "signed_out", "You are not signed in any more, so nothing was done. Sign in in another tab, then reload this page: what you entered is sent again.")
}

// redirectToSignIn sends a visitor to sign in, and back after that.
func (v *requestContext) redirectToSignIn() {
	to := "/sign-in"
	if v.r.Method == http.MethodGet && v.r.URL.Path != "/" && v.r.Header.Get("HX-Request") == "" {
		to += "?" + encodeQuery("to", v.r.URL.RequestURI())
	}
	v.redirect(to)
}

// redirect goes on at a path of ours.
func (v *requestContext) redirect(to string) {
	if v.r.Header.Get("HX-Request") != "" {
		v.w.Header().Set("HX-Redirect", to)
		v.w.WriteHeader(http.StatusNoContent)
		return
	}
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
}

// isLocalPath reports whether a path that a request brought leads to a page here.
func isLocalPath(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && !strings.ContainsAny(path, "\\\r\n\t")
}

// showError answers with a page that says what is the matter.
func (v *requestContext) showError(err error) {
	var f *fault.Error
	if errors.Is(err, context.Canceled) {
		return
	}
	if !errors.As(err, &f) || f.Kind == fault.Internal {
		// Not its path, which may be a link that lets somebody in.
		v.d.Log.ErrorContext(v.ctx, "a page failed", "request", v.requestID(), "page", v.r.Pattern, "error", err)
		f = fault.New(fault.Internal, "internal_error", "Something went wrong on our side. It was logged as request %s.", v.requestID())
	}
	status, title := httpStatus(f.Kind)
	v.setRetryAfter(f)
	if err := v.showPage(page{Template: "error", Title: title, Status: status, Data: v.newErrorPage(f)}); err != nil {
		v.d.Log.ErrorContext(v.ctx, "a page failed", "request", v.requestID(), "page", v.r.Pattern, "error", err)
		http.Error(v.w, title, status)
	}
}

// setRetryAfter tells programs when the request may go through.
func (v *requestContext) setRetryAfter(err error) {
	var f *fault.Error
	if errors.As(err, &f) && f.RetryAfter > 0 {
		v.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.RetryAfter.Seconds()))))
	}
}

// errorPage is a page without what was asked for, and where to go on.
type errorPage struct {
	Message, To, Action string
	Beside              bool // in a tab of its own: a form in this one can be sent again then
}

func (v *requestContext) newErrorPage(f *fault.Error) errorPage {
	s := errorPage{Message: f.Message, To: "/", Action: "Sign in", Beside: f.Kind == fault.Unauthenticated || f.Code == codeWrongOwner}
	path := v.r.URL.Path + "/"
	switch {
	case strings.HasPrefix(path, "/phone/"):
		s.To = "" // a phone has no other page here
	case strings.HasPrefix(path, "/mailbox/"):
		s.To, s.Action = "/mailbox", "To your mailbox"
	case f.Code == codeWrongOwner:
		s.To, s.Action = "/profile", "To your accounts"
	case v.signedIn && !v.session.NeedsSecondFactor:
		s.Action = "To the start"
	}
	return s
}

// httpStatus is how the door says the kinds of error.
func httpStatus(k fault.Kind) (code int, title string) {
	switch k {
	case fault.Invalid:
		return http.StatusUnprocessableEntity, "That needs correcting"
	case fault.Denied:
		return http.StatusForbidden, "Not allowed"
	case fault.Unauthenticated:
		return http.StatusUnauthorized, "Please sign in"
	case fault.NotFound:
		return http.StatusNotFound, "Not found"
	case fault.Conflict:
		return http.StatusConflict, "That is not possible now"
	case fault.TooLarge:
		return http.StatusRequestEntityTooLarge, "Too large"
	case fault.RateLimited:
		return http.StatusTooManyRequests, "Too many tries"
	case fault.OverQuota:
		return http.StatusInsufficientStorage, "No room"
	case fault.Unavailable:
		return http.StatusServiceUnavailable, "Not available at the moment"
	}
	return http.StatusInternalServerError, "Something went wrong"
}
